"""Reports on runs, in the formats of CI systems."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from matrix.cells import cell, failed, run_of
from support.browser import chromium
from support.models import export
from support.report_schemas import assert_valid_junit, assert_valid_report, assert_valid_sarif

import graphpass
from graphpass.error_catalog import CATALOG
from graphpass.io import load
from graphpass.matrix.baseline import Baseline
from graphpass.matrix.cells import CellResult, Problem
from graphpass.matrix.reports.junit import as_junit
from graphpass.matrix.reports.markdown import as_annotations, as_markdown
from graphpass.matrix.reports.origin import Origin, origin_of
from graphpass.matrix.reports.page import as_page
from graphpass.matrix.reports.plain import as_json, as_text
from graphpass.matrix.reports.sarif import as_sarif
from graphpass.reports.diff import diff_models
from graphpass.reports.picture import picture_of

ROOT = Path("/src")

ORIGIN = Origin("0.2.0", "2026-11-23 23:20 UTC", "f245dd2")

CONVERTED = CellResult(cell("good", "npu"), "converted", file="/src/models/good.onnx")
WARNED = CellResult(
    cell("warned"),
    "converted",
    (Problem("GP350", "warning", "a is not fused", node="a"), Problem("fuse-attention", "note", "left alone: b")),
    file="/elsewhere/warned.onnx",
)
OTHERS = (CONVERTED, WARNED, replace(CONVERTED, cell=cell("old"), state="up to date"))


def sarif_of(run):
    told = as_sarif(run, ROOT)
    assert_valid_sarif(told)
    (only,) = told["runs"]
    as_code_scanning_reads(only)
    return only


def as_code_scanning_reads(told):
    """The rules of "SARIF support for code scanning" in GitHub's documentation."""
    rules = told["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules) <= 25_000
    for rule in rules:
        assert rule["name"] != rule["id"]
        assert 0 < len(rule["shortDescription"]["text"]) <= len(rule["fullDescription"]["text"]) <= 1024
        assert rule["help"]["text"]
        assert rule["helpUri"].startswith("https://")
        assert rule["defaultConfiguration"]["level"] in {"error", "warning"}
        assert 0 < len(rule["properties"]["tags"]) <= 20
        assert rule["properties"]["problem.severity"] in {"error", "warning"}
    assert len(told["results"]) <= 25_000
    for result in told["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert not place["artifactLocation"]["uri"].startswith(("/", "file:"))
        assert place["region"]["startLine"] == 1
    alerts = [(one["ruleId"], one["partialFingerprints"]["primaryLocationLineHash"]) for one in told["results"]]
    assert len(set(alerts)) == len(alerts)
    assert "automationDetails" not in told  # populateRunAutomationDetails of upload-sarif would ignore the category


def test_sarif_holds_findings_with_rules():
    told = sarif_of(run_of(failed(2), *OTHERS))
    assert [result["level"] for result in told["results"]] == ["error", "error", "warning"]  # notes are not findings
    first = told["results"][0]
    assert first["ruleId"] == "GP350"
    rule = told["tool"]["driver"]["rules"][first["ruleIndex"]]
    assert rule["helpUri"].endswith("/docs/errors.md#gp350")
    assert rule["name"] == "UnsupportedGP350"
    assert rule["properties"]["tags"] == ["graphpass", "unsupported"]
    (location,) = first["locations"]
    assert location["logicalLocations"] == [
        {"name": "m:cpu", "fullyQualifiedName": "m:cpu", "kind": "module"},
        {"name": "node0", "fullyQualifiedName": "m:cpu::node0", "kind": "node"},
    ]
    warned = told["results"][2]
    place = warned["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "warned/warned.onnx", "uriBaseId": "%SRCROOT%"}
    assert warned["properties"]["file"] == "/elsewhere/warned.onnx"
    assert told["invocations"][0]["exitCode"] == 1


def test_sarif_separates_one_finding_of_several_targets():
    targets = [failed(2, label=label) for label in ("cpu", "gpu", "npu")]
    before, after = (sarif_of(run_of(*targets))["results"] for _ in range(2))
    assert [one["partialFingerprints"] for one in before] == [one["partialFingerprints"] for one in after]


@pytest.mark.parametrize("rule", [*CATALOG, "verify", "XY1"])
def test_sarif_describes_each_rule(rule):
    problem = Problem(rule, "warning", "something")
    sarif_of(run_of(replace(WARNED, problems=(problem,))))


def test_sarif_names_files_relative_to_the_sources(monkeypatch):
    result = replace(failed(), file="/src/a b/model.onnx")
    place = sarif_of(run_of(result))["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "a%20b/model.onnx", "uriBaseId": "%SRCROOT%"}


@pytest.mark.slow
def test_sarif_holds_no_more_than_github_shows():
    told = sarif_of(run_of(WARNED, failed(5_100)))
    assert len(told["results"]) == 5_000
    assert {result["level"] for result in told["results"]} == {"error"}
    (notice,) = told["invocations"][0]["toolExecutionNotifications"]
    assert notice["message"]["text"].startswith("101 findings of the lowest levels are omitted")


def test_fingerprints_stay_when_numbers_change():
    before, after = failed(3), failed(3)
    slower = tuple(replace(one, message=f"{one.message}0") for one in after.problems)
    assert before.fingerprints == replace(after, problems=slower).fingerprints
    assert len(set(before.fingerprints)) == 3
    assert not set(before.fingerprints) & set(failed(3, label="gpu").fingerprints)
    assert not set(before.fingerprints) & set(failed(3, node="other").fingerprints)
    alike = replace(before, problems=before.problems[:1] * 3)
    assert len(set(alike.fingerprints)) == 3


def test_a_baseline_suppresses_known_findings():
    known = failed(2)
    entries = Baseline(Path("baseline.json")).updated(run_of(known, WARNED), {"m:cpu", "warned:cpu"}).entries
    assert [entry["cell"] for entry in entries] == ["m:cpu", "m:cpu", "warned:cpu"]
    prints = [entry["fingerprint"] for entry in entries]
    run = run_of(known, WARNED, baseline=prints, fail_on=["warning"])
    assert (run.exit_code, run.verdict(known), run.verdict(WARNED)) == (0, "known", "known")
    results = sarif_of(run)["results"]
    assert [(one["baselineState"], "suppressions" in one) for one in results] == [("unchanged", True)] * 3
    assert as_annotations(run, ROOT) == ""
    assert run_of(known, baseline=prints[:1]).exit_code == 1
    more = failed(3)
    assert run_of(more, baseline=prints).verdict(more) == "failed"


@pytest.mark.parametrize(
    ("results", "given", "code"),
    [
        (OTHERS, {}, 0),
        (OTHERS, {"fail_on": ["warning"]}, 1),
        ((CONVERTED, failed()), {}, 1),
        ((CONVERTED, failed(exit_code=3)), {}, 1),
        ((CONVERTED, failed(exit_code=70)), {}, 70),
        ((CONVERTED, CellResult(cell("c"), "cancelled")), {"interrupted": True}, 130),
        ((CONVERTED, CellResult(cell("c"), "cancelled")), {}, 1),
    ],
)
def test_exit_codes_follow_from_results(results, given, code):
    assert run_of(*results, **given).exit_code == code


def test_junit_holds_cells_as_cases():
    bad = failed(2)
    bad = replace(bad, problems=(replace(bad.problems[0], message="a\x00b <c> \ud800 &"), bad.problems[1]))
    broken = failed(model="broken", exit_code=3)
    known = failed(model="known")
    stopped = CellResult(cell("stopped"), "cancelled")
    run = run_of(bad, broken, known, stopped, *OTHERS, baseline=known.fingerprints, interrupted=True)
    text = as_junit(run)
    assert_valid_junit(text)
    cases = {case.get("classname"): case for case in ET.fromstring(text).iter("testcase")}
    kinds = {name: [child.tag for child in case] for name, case in cases.items()}
    assert kinds == {
        "m": ["failure"],
        "broken": ["error"],
        "known": ["skipped"],
        "stopped": ["skipped"],
        "good": [],
        "warned": ["system-out"],
        "old": [],
    }
    assert cases["m"][0].get("type") == "GP350"
    assert "node: node1" in cases["m"][0].text
    root = ET.fromstring(text)
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("7", "1", "1")


def test_json_holds_counts_and_verdicts():
    run = run_of(failed(2), *OTHERS)
    told = json.loads(json.dumps(as_json(run), allow_nan=False))
    assert_valid_report(told)
    assert told["counts"] == {"up_to_date": 1, "converted": 2, "failed": 1, "known": 0, "cancelled": 0}
    assert [one["verdict"] for one in told["cells"]] == ["failed", "ok", "warning", "ok"]


def test_text_shows_some_findings_of_each_cell():
    text = as_text(run_of(failed(9), *OTHERS))
    assert text.count("error GP350") == 5
    assert "  and 4 more; the reports list all\n  hint: try again\n" in text
    assert "\nwarned:cpu: /elsewhere/warned.onnx\n  warning GP350: a is not fused\n" in text
    assert text.endswith("4 cells: 1 up to date, 2 converted, 1 failed, in 1.2 s")


def test_text_names_changes():
    changed = replace(
        CONVERTED, changed=True, changes=("+1 Add", "-1 Gather", "inputs: 1 changed", "caches: 4 changed")
    )
    line = "good:npu  converted  out/good/npu, changed: +1 Add, -1 Gather, inputs: 1 changed .."
    assert as_text(run_of(changed)).splitlines()[0] == line


def test_markdown_holds_tables_of_cells():
    text = as_markdown(run_of(failed(1, node="a|b*c"), *OTHERS))
    assert "| model | cpu | npu |\n| --- | --- | --- |\n| `m` | ❌ failed |  |\n| `good` |  | ✅ converted |" in text
    assert "| `m:cpu` | GP350 | a&#124;b&#42;c0 is not fused: 0 ms |" in text
    assert len(as_markdown(run_of(failed(15_000))).encode()) <= 1 << 20


def test_names_are_escaped_in_markdown_and_logs():
    named = failed(1, node="a<img src=x onerror=1>\x1b]0;owned\x07`b` [l](x)\n::error::forged")
    run = run_of(replace(named, cell=cell("m`<b>x</b>|y")))
    text = as_markdown(run)
    assert "<img" not in text
    assert "<b>" not in text
    assert "\x1b" not in text
    (row,) = [line for line in text.splitlines() if "GP350" in line]
    assert row.count(" | ") == 2
    (line,) = as_annotations(run, ROOT).splitlines()
    assert line.startswith("::error file=")
    assert "\x1b" not in line


def test_annotations_are_limited_and_escaped():
    result = replace(failed(60), file="/src/models/a,b.onnx")
    lines = as_annotations(run_of(result, WARNED), ROOT).splitlines()
    assert len(lines) == 50
    assert lines[0] == (
        "::error file=models/a%2Cb.onnx,title=GP350 m%3Acpu::node0 is not fused: 0 ms%0Ahint: try again"
    )
    (warning,) = as_annotations(run_of(WARNED), ROOT).splitlines()
    assert warning.startswith("::warning file=/elsewhere/warned.onnx,title=GP350 warned%3Acpu::a is not fused")


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


def test_the_origin_of_a_report_is_found(monkeypatch, tmp_path):
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILD_SOURCEVERSION", "GIT_COMMIT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    outside = origin_of(tmp_path)
    assert (outside.time, outside.commit) == ("2023-11-14 22:13 UTC", "")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    assert origin_of(tmp_path).commit == ""  # nothing is committed
    identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", tmp_path, *identity, "commit", "--quiet", "--allow-empty", "-m", "m"], check=True)
    assert re.fullmatch(r"[0-9a-f]{40}", origin_of(tmp_path).commit)
    monkeypatch.setenv("CI_COMMIT_SHA", "f245dd2")
    assert origin_of(tmp_path).commit == "f245dd2"


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
