"""Masks compared for every batch, past and length: faults that no prompt triggers are found."""

from __future__ import annotations

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.loaded import converted, exported, openvino_model, reshaped

from graphpass.analysis.caches.masks import find_masks
from graphpass.ir.bodies import inlined
from graphpass.verify import compare
from graphpass.verify.masks import compare_masks
from graphpass.verify.verdicts import Equal, Unlike


def verdicts(reference, candidate):
    masks = [inlined(model).analysis(find_masks) for model in (reference, candidate)]
    return [compare_masks(*pair) for pair in zip(*masks, strict=True)]


@pytest.mark.parametrize("target", ["cpu", "gpu", "ort"])
@pytest.mark.parametrize("model", ["llama", "gpt2", "falcon", "phi3", "opt", "bloom"])
def test_results_are_equal_for_any_input(model, target):
    reference = exported(f"{model}/onnx")
    assert set(verdicts(reference, converted(reference, target).model)) == {Equal("any")}


@pytest.mark.parametrize("model", ["mistral_sw8", "gemma3_text", "gpt_neo", "gpt_oss"])
def test_windows_by_positions_are_equal_without_padding(model):
    reference = exported(f"{model}/onnx")
    assert set(verdicts(reference, converted(reference).model)) <= {Equal("any"), Equal("unpadded")}


@pytest.mark.parametrize("batch", [1, 2])
def test_masks_of_a_fixed_batch_are_equal_at_this_batch(batch):
    model = exported("llama/ov-stateful")
    fixed = reshaped(model, batch)
    assert set(verdicts(model, fixed)) == set(verdicts(fixed, model)) == {Equal("any")}
    wrong = reshaped(hidden_if(lambda mask: ops.greater(size(mask, 1), number(5000))), batch)
    assert any(isinstance(verdict, Unlike) for verdict in verdicts(model, wrong))


def number(value):
    return ops.constant(numpy.array(value, numpy.int64))


def hidden_if(condition):
    """Hide the first position in the first layer of a llama once a condition on ``attention_mask`` holds."""
    model = openvino_model("llama")
    native = model.ov_model
    node = next(one for one in native.get_ordered_ops() if one.get_type_name() == "ScaledDotProductAttention")
    mask = node.input_value(3)
    source = next(one for one in native.inputs if "attention_mask" in one.get_names()).get_node()
    keys = ops.range(number(0), ops.gather(ops.shape_of(mask, "i64"), number(3), number(0)), number(1), "i64")
    hides = ops.logical_and(condition(source), ops.equal(keys, number(0)))
    if mask.get_element_type() == openvino.Type.boolean:
        joined = ops.logical_and(mask, ops.logical_not(hides))
    else:
        joined = ops.select(hides, ops.constant(numpy.float32(-65504.0)), mask)
    node.input(3).replace_source_output(joined.output(0))
    native.validate_nodes_and_infer_types()
    model.mark_edited()
    return model


def size(mask, axis):
    return ops.gather(ops.shape_of(mask, "i64"), number(axis), number(0))


def pads(mask):
    missing = ops.subtract(size(mask, 1), ops.reduce_sum(mask, number([1]), True))
    return ops.unsqueeze(missing, number([1, 2]))


FAULTS = {
    "total": lambda mask: ops.greater_equal(size(mask, 1), number(5000)),
    "square of the total": lambda mask: ops.greater_equal(ops.multiply(size(mask, 1), size(mask, 1)), number(777**2)),
    "batch": lambda mask: ops.greater_equal(size(mask, 0), number(3)),
    "pads": lambda mask: ops.greater(pads(mask), number(8)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_from_a_length_on_have_a_counterexample(fault):
    reference = exported("llama/ov-stateful")
    found = verdicts(reference, hidden_if(FAULTS[fault]))
    assert isinstance(found[0], Unlike)
    assert found[0].needs_padding == (fault == "pads")
    assert found[1] == Equal("any")


def test_verify_reports_the_example_and_the_proof():
    reference = exported("llama/ov-stateful")
    passed = compare(reference, converted(reference).model, steps=1)
    assert "masks of 2 attention equal for every batch, past and length" in passed.summary()
    found = compare(reference, hidden_if(FAULTS["total"]), steps=1)
    assert found.divergence is not None
    assert found.divergence.place is not None
    assert "attends to" in found.divergence.reason
