"""The target `cpu`: its pipeline with and without options."""

import pytest

from graphpass.engine.pipeline import parse_target
from graphpass.testing import assert_same, run, tiny_model


def names(target, model):
    return [step.name for step in parse_target(target).pipeline(model)]


def test_onnx_is_converted_fused_and_made_stateful():
    model = tiny_model("llama", layers=1)
    passes = names("cpu", model)
    assert passes[0] == "to-openvino"
    assert passes.index("fuse-attention") < passes.index("make-stateful")
    assert "insert-reorder" not in passes
    assert "last-logits" not in passes


@pytest.mark.parametrize(
    ("target", "added"), [("cpu{cache=reorder}", "insert-reorder"), ("cpu{logits=last}", "last-logits")]
)
def test_options_add_passes(target, added):
    model = tiny_model("llama", layers=1)
    assert added in names(target, model)
    assert added not in names("cpu", model)


def test_the_result_keeps_its_contract():
    model, target = tiny_model("llama", layers=1), parse_target("cpu")
    result = run(model, target.pipeline(model))
    assert [condition.name for condition in target.contract if condition.missing(result)] == []
    assert_same(model, result, steps=1, proven=True)
