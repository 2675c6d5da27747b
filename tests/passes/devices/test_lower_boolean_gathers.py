"""`lower-boolean-gathers`: what the GPU plugin refuses is predicted, and lowered."""

from __future__ import annotations

from pathlib import Path

from graphpass.targets import check_model
from graphpass.testing import read_cases


def refused(model) -> set[str]:
    report = check_model(model, "gpu", confirm=False)
    return {str(finding.node) for finding in report.findings if finding.verdict == "refused"}


def test_the_prediction_follows_the_pass():
    before, after = read_cases(Path(__file__).with_name("lower_boolean_gathers.graph"))[0].run()
    assert (refused(before), refused(after.model)) == ({"found"}, set())
