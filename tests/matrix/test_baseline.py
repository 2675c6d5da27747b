"""Known findings, which do not fail a run."""

from pathlib import Path

from matrix.cells import ROOT, WARNED, failed, run_of

from graphpass.matrix.baseline import Baseline
from graphpass.matrix.reports.markdown import as_annotations
from graphpass.matrix.reports.sarif import as_sarif


def test_a_baseline_suppresses_known_findings():
    known = failed(2)
    entries = Baseline(Path("baseline.json")).updated(run_of(known, WARNED), {"m:cpu", "warned:cpu"}).entries
    assert [entry["cell"] for entry in entries] == ["m:cpu", "m:cpu", "warned:cpu"]
    prints = [entry["fingerprint"] for entry in entries]
    run = run_of(known, WARNED, baseline=prints, fail_on=["warning"])
    assert (run.exit_code, run.verdict(known), run.verdict(WARNED)) == (0, "known", "known")
    results = as_sarif(run, ROOT)["runs"][0]["results"]
    assert [(one["baselineState"], "suppressions" in one) for one in results] == [("unchanged", True)] * 3
    assert as_annotations(run, ROOT) == ""
    assert run_of(known, baseline=prints[:1]).exit_code == 1
    more = failed(3)
    assert run_of(more, baseline=prints).verdict(more) == "failed"
