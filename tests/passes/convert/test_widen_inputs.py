"""widen-inputs: tokens, masks and positions are declared as runtimes feed them."""

from __future__ import annotations

import numpy
import pytest

import graphpass
from graphpass.engine.pipeline import parse_target
from graphpass.ir.inputs import narrow_inputs
from graphpass.runtime import open_session
from graphpass.testing import tiny_model


def narrowed(form: str, name: str, element_type: str) -> graphpass.Model:
    """Return a decoder with one input of another type, which it converts to i64."""
    model = tiny_model("llama", form)
    value, rewriter = model.graph.parameters[name], model.rewriter()
    rewriter.redirect_uses(value, rewriter.op("Convert", value, name="wide", to="i64"), lambda _: True)
    rewriter.declare_type(value, element_type)
    assert rewriter.finish()
    return model


@pytest.mark.parametrize("form", ["onnx", "openvino", "stateful"])
@pytest.mark.parametrize(("name", "element_type"), [("input_ids", "i32"), ("attention_mask", "boolean")])
def test_inputs_are_i64_afterwards(form, name, element_type):
    model = narrowed(form, name, element_type)
    assert [value.name for value in narrow_inputs(model.graph)] == [name]
    result = graphpass.PassManager(graphpass.parse("widen-inputs")).run(model)
    assert result.records[-1].result.statistics == {"inputs widened": 1}
    assert narrow_inputs(result.model.graph) == ()
    assert [port.name for port in result.model.inputs] == [port.name for port in model.inputs]
    expected = open_session(model).prefill([[1, 5, 9], [0, 3, 4]], [[1, 1, 1], [0, 1, 1]])
    found = open_session(result.model).prefill([[1, 5, 9], [0, 3, 4]], [[1, 1, 1], [0, 1, 1]])
    numpy.testing.assert_array_equal(found, expected)


def test_other_models_are_unchanged():
    assert not graphpass.PassManager(graphpass.parse("widen-inputs")).run(tiny_model("gpt2")).changed


@pytest.mark.parametrize(("target", "runs"), [("cpu", True), ("ort-genai{context=64}", False)])
def test_targets_run_the_pass_for_types_that_their_runtime_refuses(target, runs):
    """onnxruntime-genai feeds i32 as well."""
    passes = parse_target(target).pipeline(narrowed("onnx", "input_ids", "i32"))
    assert ("widen-inputs" in [each.name for each in passes]) == runs
    passes = parse_target(target).pipeline(narrowed("onnx", "attention_mask", "boolean"))
    assert "widen-inputs" in [each.name for each in passes]
