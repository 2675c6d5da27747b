"""JUnit: cells as test cases."""

from dataclasses import replace
from xml.etree import ElementTree as ET

from matrix.cells import OTHERS, cell, failed, run_of
from support.report_schemas import assert_valid_junit

from graphpass.matrix.cells import CellResult
from graphpass.matrix.reports.junit import as_junit


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
