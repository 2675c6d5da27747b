"""`lower-boolean-gathers`: what the GPU plugin refuses is predicted, and lowered."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.loaded import run_once
from support.models import exporters

from graphpass.io import load
from graphpass.targets import check_model
from graphpass.testing import read_cases
from graphpass.verify import compare
from graphpass.verify.structure.proof import compare_structures


def refused(model) -> set[str]:
    report = check_model(model, "gpu", confirm=False)
    return {str(finding.node) for finding in report.findings if finding.verdict == "refused"}


def test_the_prediction_follows_the_pass():
    before, after = read_cases(Path(__file__).with_name("lower_boolean_gathers.graph"))[0].run()
    assert (refused(before), refused(after.model)) == ({"found"}, set())


@pytest.mark.parametrize("family", ["llama", pytest.param("olmo3", marks=pytest.mark.slow)])
def test_boolean_gathers_are_removed(family):
    model = load(exporters("transformers-onnx", family))
    after = run_once(model, "lower-boolean-gathers").model
    assert next(model.graph.of_op("GatherND")).outputs[0].element_type == "boolean"
    assert not list(after.graph.of_op("GatherND"))
    found = compare_structures(model, after)
    assert found is not None
    assert found.equal == found.operators > 0
    assert compare(model, after, steps=3).passed
