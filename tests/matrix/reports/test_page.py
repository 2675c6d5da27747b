"""The HTML page of a run: pictures, names and widths."""

from dataclasses import replace

import pytest
from matrix.cells import CONVERTED, OTHERS, cell, failed, run_of
from support.browser import chromium
from support.models import export

import graphpass
from graphpass.io import load
from graphpass.matrix.reports.origin import Origin
from graphpass.matrix.reports.page import as_page
from graphpass.reports.diff import diff_models
from graphpass.reports.picture import picture_of

ORIGIN = Origin("0.2.0", "2026-11-23 23:20 UTC", "f245dd2")


def test_the_page_holds_pictures_and_escapes_names():
    bad = failed(1, node="<script>")
    picture = {"titles": ["</script>"], "groups": []}
    page = as_page(run_of(bad, *OTHERS), lambda one: [picture] if one.model == "good" else [], ORIGIN)
    assert page.count('class="picture"') == 1
    assert '</script>"]' not in page
    assert "<script>0" not in page
    assert page.count("<details id=") == 4
    assert all(f'href="#cell-{number}"' in page and f'id="cell-{number}"' in page for number in range(4))
    assert all(fact in page for fact in ("0.2.0", "2026-11-23 23:20 UTC", "f245dd2"))


@pytest.mark.slow
def test_the_page_in_a_browser(tmp_path):
    """A cell opens by its place in the matrix, and draws its models when asked."""
    model = load(export("llama", "ov-stateless"))
    after = graphpass.PassManager(graphpass.parse("fuse-attention")).run(model).model
    picture = picture_of(["before", "after"], model, after, diff_models(model, after))
    page = tmp_path / "page.html"
    page.write_text(as_page(run_of(failed(2), *OTHERS), lambda _: [picture], ORIGIN), "utf-8")
    with chromium() as browser:
        tab = browser.new_page()
        complaints = []
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto(page.as_uri())
        assert tab.locator("#cell-0 >> text=node1 is not fused").is_visible()
        assert not tab.locator("#cell-1 >> text=output").first.is_visible()
        tab.locator("table a", has_text="converted").first.click()
        tab.locator("#cell-1 >> text=output").first.wait_for()
        tab.locator("#cell-1 >> text=Operators before and after").click()
        tab.locator("#cell-1 .picture >> text=layers 0-1").first.wait_for()  # details report their opening later
        assert complaints == []


@pytest.mark.slow
def test_the_page_on_screens_of_all_widths(tmp_path):
    """No name widens the page, and the filter leaves the cells that are asked for."""
    long = replace(CONVERTED, cell=cell("Qwen2.5-0.5B-Instruct-int4-awq-with-past", "ort{device=cuda,cache=reorder}"))
    page = tmp_path / "page.html"
    page.write_text(as_page(run_of(failed(node="/layers.0/" * 9), long, *OTHERS), lambda _: [], ORIGIN), "utf-8")
    with chromium() as browser:
        for width in (390, 768, 1280):
            tab = browser.new_page(viewport={"width": width, "height": 844})
            tab.goto(page.as_uri())
            assert tab.evaluate("document.documentElement.scrollWidth") == width
            name = tab.locator(".matrix th", has_text="Qwen2.5").bounding_box()
            assert name["height"] < 80, "the name breaks letter by letter"
            tab.locator(".filter input").fill("qwen ORT")
            assert tab.locator("details[data-cell]:visible").count() == 1
            assert tab.locator(".matrix tr:visible a:visible").count() == 1
            assert tab.locator(".filter .found").inner_text() == "1 of 5"
            tab.close()
