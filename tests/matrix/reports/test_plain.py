"""Reports as text and JSON."""

import json
from dataclasses import replace

from matrix.cells import CONVERTED, OTHERS, failed, run_of
from support.report_schemas import assert_valid_report

from graphpass.matrix.reports.plain import as_json, as_text


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
