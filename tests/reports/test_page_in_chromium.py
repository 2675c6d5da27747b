"""Pages as a person uses them, in headless Chromium."""

from __future__ import annotations

import struct
from xml.etree import ElementTree

import pytest
from support.browser import chromium
from support.models import export
from support.scale import scaled

import graphpass
from graphpass.reports.diff import diff_models
from graphpass.reports.difference import Diff
from graphpass.reports.page import render

pytestmark = pytest.mark.slow

HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    """The page about the conversion of a llama, by number of layers."""
    made = {}

    def page(layers):
        if layers not in made:
            folder = tmp_path_factory.mktemp(str(layers))
            before = graphpass.load(scaled("llama", "tiny", folder / "model", layers=layers))
            passes = graphpass.parse("to-openvino,fuse-attention,simplify-shapes,make-stateful")
            after = graphpass.PassManager(passes).run(before).model
            made[layers] = folder / "page.html"
            text = Diff(before, after, diff_models(before, after)).to_html("exported", "converted")
            made[layers].write_text(text, encoding="utf-8")
        return made[layers]

    return page


@pytest.fixture
def opened(browser):
    """Open a page; in the end it must have asked for nothing else and raised nothing."""
    asked, raised = [], []

    def open_page(file, width=1400, scheme="light"):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: raised.append(str(error)))
        page.on("console", lambda message: raised.append(message.text))
        page.goto(file.as_uri())
        return page

    yield open_page
    assert raised == []
    made = [url for url in asked if url.startswith("blob:")]  # by the page itself
    assert all(url.startswith("file:") and url.endswith(".html") for url in asked if url not in made)


@pytest.mark.parametrize("layers", [4, 24, 80])
def test_layers_are_folded_and_unfold(opened, page_of, layers):
    page = opened(page_of(layers))
    assert page.locator(".strip button").count() == layers
    folded = page.locator(".group", has_text="alike")
    alike = int(folded.locator(".head").inner_text().split(" alike")[0].split()[-1])
    assert alike >= layers - 2
    # Only what is open is drawn.
    assert page.locator(".cell").count() < 400
    folded.locator("select").select_option(label=f"layer {layers - 1}")
    assert f"layers.{layers - 1}/" in folded.locator(".cell .name").nth(5).inner_text()
    groups = page.locator(".group").count()
    folded.get_by_role("button", name="unfold").click()
    assert page.locator(".group").count() == groups + alike - 1
    page.get_by_role("button", name="fold layers").click()
    assert page.locator(".group").count() == groups


def test_search_finds_an_operator_of_a_folded_layer(opened, page_of):
    page = opened(page_of(24))
    page.keyboard.press("/")
    page.keyboard.type("layers.17 softmax")
    assert page.locator(".found").inner_text().endswith("found")
    assert "layer 17: Softmax" in page.locator(".hits li").first.inner_text()
    page.keyboard.press("Enter")
    hit = page.locator(".found-here")
    assert hit.locator(".op").inner_text() == "Softmax"
    assert "layers.17/" in hit.locator(".name").inner_text()
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    assert "axis: -1" in page.locator(".about").inner_text()
    page.keyboard.press("/")
    page.keyboard.type("nothing is called so")
    assert page.locator(".found").inner_text() == "0 found"


def test_the_keyboard_alone_moves_through_operators_and_changes(opened, page_of):
    page = opened(page_of(4))
    page.locator(".cell[tabindex='0']").focus()

    def focused(attribute):
        return page.evaluate(f"document.activeElement.{attribute}")

    first = focused("innerText")
    page.keyboard.press("ArrowDown")
    assert focused("innerText") != first
    page.keyboard.press("ArrowUp")
    assert focused("innerText") == first
    page.keyboard.press("n")
    assert {"removed", "changed"} & set(focused("className").split())
    page.keyboard.press("ArrowRight")
    assert focused("dataset.side") == "1"
    page.keyboard.press("n")
    assert {"added", "changed"} & set(focused("className").split())
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert focused("dataset.side") == "0"


def test_unchanged_operators_show_on_demand(opened, page_of):
    page = opened(page_of(4))
    rows = page.locator(".row").count()
    page.locator(".run").first.click()
    assert page.locator(".row").count() > rows
    page.get_by_label("only changes").uncheck()
    assert page.locator(".run").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 1400])
def test_a_page_fits_screens_and_schemes(opened, page_of, width, scheme):
    page = opened(page_of(4), width, scheme)
    page.get_by_role("button", name="open all").click()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    grounds = [page.evaluate("getComputedStyle(document.body).backgroundColor")]
    page.get_by_role("button", name="light or dark").click()
    grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    white = "rgb(255, 255, 255)"
    assert [ground == white for ground in grounds] == [scheme == "light", scheme == "dark"]


def test_hostile_names_are_shown_as_text(opened, tmp_path):
    model = graphpass.load(export("llama", "onnx")).clone()
    next(node for node in model.proto.graph.node if node.op_type == "Softmax").name = HOSTILE
    model.mark_edited()
    (tmp_path / "page.html").write_text(render(model, graphpass.analyze_caches(model), HOSTILE), encoding="utf-8")
    page = opened(tmp_path / "page.html")
    assert page.locator("h1").inner_text() == HOSTILE
    page.keyboard.press("/")
    page.keyboard.type("window.broken")
    page.keyboard.press("Enter")
    assert HOSTILE in page.locator(".found-here").get_attribute("title")
    assert page.evaluate("window.broken") is None


def test_evidence_of_a_cache_opens_by_a_click(opened, tmp_path):
    model = graphpass.load(export("lfm2", "ov-stateful"))
    (tmp_path / "page.html").write_text(render(model, graphpass.analyze_caches(model), "lfm2"), encoding="utf-8")
    page = opened(tmp_path / "page.html")
    page.locator("[data-cache='1']").click()
    page.locator("#cache-1.chosen").wait_for()


def test_all_layers_open_at_once(opened, page_of):
    page = opened(page_of(24))
    page.get_by_role("button", name="unfold").first.click()
    page.get_by_role("button", name="open all").click()
    assert page.locator(".group").count() == page.locator(".head[aria-expanded=true]").count() >= 24
    # Rows out of sight are not laid out, which took 2 s of 2.8.
    assert page.evaluate("getComputedStyle(document.querySelector('.row')).contentVisibility") == "auto"


def test_layers_are_labelled(opened, page_of):
    page = opened(page_of(24))
    assert page.locator(".strip small").all_inner_texts() == [str(layer) for layer in range(0, 24, 2)]


def test_two_fingers_zoom_a_graph_and_one_moves_it(opened, page_of):
    page = opened(page_of(4), width=390)
    page.get_by_role("button", name="graph", exact=True).first.click()
    graph = page.locator("svg.graph").first
    graph.scroll_into_view_if_needed()
    where = graph.bounding_box()
    x, y = where["x"] + where["width"] / 2, where["y"] + where["height"] / 2
    touch = page.context.new_cdp_session(page)

    def look():
        page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")  # moves are sent by frame
        return [float(number) for number in graph.get_attribute("viewBox").split()]

    def send(kind, *offsets):
        points = [{"x": x + offset, "y": y, "id": number} for number, offset in enumerate(offsets)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    whole = look()
    send("touchStart", -20, 20)
    for far in (20, 25, 30, 35, 40):  # the first moves are held back
        send("touchMove", -far, far)
    near = look()
    assert near[2] == pytest.approx(whole[2] / 2, rel=0.3)
    send("touchEnd")
    send("touchStart", 0)
    for far in (20, 30, 40, 50):
        send("touchMove", far)
    assert (look()[0] < near[0], look()[2]) == (True, near[2])


def test_a_small_graph_is_drawn_zoomed_and_saved(opened, tmp_path):
    model = graphpass.load(export("llama", "onnx")).clone()
    softmax = next(node for node in model.proto.graph.node if node.op_type == "Softmax")
    softmax.name = HOSTILE
    model.mark_edited()
    text = render(model, graphpass.analyze_caches(model), "/models/" + 60 * "m")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    page = opened(tmp_path / "page.html", width=390)
    page.get_by_role("button", name="graph", exact=True).first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    graph = page.locator("svg.graph")
    seen = graph.get_attribute("viewBox")
    page.get_by_role("button", name="zoom in").click()
    near = [float(number) for number in graph.get_attribute("viewBox").split()]
    assert near[2] < float(seen.split()[2])
    graph.focus()
    page.keyboard.press("ArrowDown")
    assert [float(number) for number in graph.get_attribute("viewBox").split()][1] > near[1]
    page.get_by_role("button", name="fit").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="save as SVG").click()
    root = ElementTree.parse(waiting.value.path()).getroot()
    space = "{http://www.w3.org/2000/svg}"
    titles = [title.text for title in root.iter(f"{space}title")]
    assert any(title.startswith(f"Softmax {HOSTILE}") for title in titles)
    assert len(list(root.iter(f"{space}rect"))) == len(titles) + 1
    assert all(text.get("fill").startswith("rgb") for text in root.iter(f"{space}text"))
    with page.expect_download() as waiting:
        page.get_by_role("button", name="save as PNG").click()
    assert waiting.value.suggested_filename.startswith("models-mmm")
    picture = waiting.value.path().read_bytes()
    width, height = struct.unpack(">II", picture[16:24])
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert width / height == pytest.approx(int(root.get("width")) / int(root.get("height")), rel=0.01)
    assert page.evaluate("window.broken") is None
    page.get_by_role("button", name="graph", exact=True).first.click()
    assert page.locator("svg.graph").count() == 0
    assert page.locator(".cell").first.is_visible()
