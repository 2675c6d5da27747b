"""Comparisons with models that take padding in front for tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.last_token import of_last_token
from support.models import export

import graphpass
from graphpass.engine.manager import PassManager
from graphpass.io import load
from graphpass.ir.model import Model
from graphpass.passes.masks.mask_padding import MaskPadding
from graphpass.runtime import open_session
from graphpass.testing import tiny_model
from graphpass.verify import compare
from graphpass.verify.readings import RowByRow, misreads_left_padding

Rewrite = Callable[[openvino.Output], openvino.Node]


@pytest.fixture(scope="module")
def builder_s() -> Model:
    return load(export("llama", "onnx-genai"))


def test_models_misreading_left_padding_are_found(builder_s):
    assert misreads_left_padding(builder_s)
    assert not misreads_left_padding(load(export("llama", "onnx")))


def test_the_batch_is_compared_with_each_row_alone(builder_s):
    candidate = PassManager(graphpass.get_target("cpu").pipeline(builder_s)).run(builder_s).model
    comparison = compare(builder_s, candidate, steps=3)
    assert comparison.passed, comparison.summary()
    assert not comparison.skipped
    assert "padded on the left" in comparison.sequences[2].description


def test_another_exporter_s_model_computes_the_same(builder_s):
    comparison = compare(builder_s, load(export("llama", "onnx")), steps=3)
    assert comparison.passed, comparison.summary()


def test_a_candidate_misreading_padding_is_found(builder_s):
    comparison = compare(load(export("llama", "onnx")), builder_s, steps=3)
    assert not comparison.passed
    assert comparison.divergence is not None
    assert (comparison.divergence.sequence, comparison.divergence.step) == (2, 0)
    assert comparison.divergence.reason.endswith("to compare padding on the right, use --padding right")


def test_a_model_equals_itself(builder_s):
    assert compare(builder_s, builder_s, steps=3).passed


@pytest.mark.parametrize("name", ["lfm2", "qwen3_next"])
def test_a_candidate_excluding_padding_from_states_is_equal(name):
    """Those of the reference absorb it: each row alone tells what is right."""
    absorbing = load(export(name, "ov-stateless"))
    masked = PassManager([MaskPadding()]).run(absorbing).model
    assert (misreads_left_padding(absorbing), misreads_left_padding(masked)) == (True, False)
    comparison = compare(absorbing, masked, steps=3)
    assert comparison.passed, comparison.summary()
    assert not compare(masked, absorbing, steps=0).passed


def rewired(model: Model, op: str, port: int | None, rewrite: Rewrite) -> Model:
    """A copy in which ``rewrite`` changes what enters each ``op`` at ``port``, or what the input ``op`` gives."""
    copy = model.clone()
    for node in copy.ov_model.get_ordered_ops():
        if port is not None and node.get_type_name() == op:
            node.input(port).replace_source_output(rewrite(node.input_value(port)).output(0))
        elif port is None and node.get_friendly_name() == op:
            readers = node.output(0).get_target_inputs()
            changed = rewrite(node.output(0)).output(0)
            for reader in readers:
                reader.replace_source_output(changed)
    return copy


def opened_where_nothing_is_seen(mask: openvino.Output) -> openvino.Node:
    zero = ops.constant(numpy.float32(0))
    sees_nothing = ops.less(ops.reduce_max(mask, numpy.array([-1]), keep_dims=True), ops.constant(numpy.float32(-1000)))
    return ops.select(sees_nothing, zero, mask)


def test_attention_over_padding_only_is_not_a_difference():
    """Layers of attention stand before convolutions whose windows take it in, in the reference as in the candidate."""
    absorbing = load(export("lfm2", "ov-stateless"))
    other = rewired(absorbing, "ScaledDotProductAttention", 3, opened_where_nothing_is_seen)
    comparison = compare(absorbing, other, steps=3)
    assert comparison.passed, comparison.summary()
    assert comparison.skipped[0] == "right padding: it enters linear caches"
    assert "padded after the first" in comparison.sequences[2].description


def test_visible_padding_is_found_after_such_layers():
    absorbing = load(export("lfm2", "ov-stateless"))
    one = ops.constant(numpy.int64(1))
    open_to_all = rewired(absorbing, "attention_mask", None, lambda mask: ops.maximum(mask, one))
    comparison = compare(absorbing, open_to_all, steps=0)
    assert comparison.divergence is not None
    assert comparison.divergence.sequence == 2


def counts_places() -> Model:
    """gpt2 with positions that count what is in the cache, padding included."""
    counting = load(export("gpt2", "ov-stateless"))
    inputs = {port.get_any_name(): port for port in counting.ov_model.inputs}
    zero, one, two = (ops.constant(numpy.int64(number)) for number in range(3))
    past = ops.gather(ops.shape_of(inputs["past_key_values.0.key"]), two, zero)
    length = ops.gather(ops.shape_of(inputs["input_ids"]), one, zero)
    counted = ops.unsqueeze(ops.range(past, ops.add(past, length), one, output_type="i64"), zero)
    for reader in inputs["position_ids"].get_target_inputs():
        reader.replace_source_output(counted.output(0))
    return counting


def test_counted_positions_equal_position_ids():
    """It counts padding, too, and learned positions are not the same from another one on."""
    told, counting = load(export("gpt2", "ov-stateless")), counts_places()
    comparison = compare(counting, told, steps=3)
    assert comparison.passed, comparison.summary()
    assert not compare(told, counting, steps=0).passed


def test_a_reference_misreading_padding_after_prompts_is_followed():
    """mpt's ALiBi counts places: no rewrite tells what padding in front of later tokens should do."""
    told, counting = load(export("gpt2", "ov-stateless")), counts_places()
    comparison = compare(counting, counts_places(), steps=3, padding="right")
    assert comparison.passed, comparison.summary()
    assert any("all prompts of a batch must have one length" in reason for reason in comparison.skipped)
    assert not compare(told, counting, steps=3, padding="right").passed
    assert not compare(counting, hidden_in_front_only(counting), steps=3, padding="right").passed


def test_padding_on_the_right_is_compared_with_each_row_alone(builder_s):
    comparison = graphpass.verify(export("llama", "onnx"), builder_s, steps=3, padding="right")
    assert comparison.passed, comparison.summary()
    assert any("padded on the right" in sequence.description for sequence in comparison.sequences)


def test_a_bias_instead_of_counts_reads_padding_in_front():
    model = load(export("llama", "onnx"))
    counting, biased = (
        PassManager(graphpass.parse(f"fuse-group-query-attention{{padding={padding}}}")).run(model).model
        for padding in ("right", "any")
    )
    assert (misreads_left_padding(counting), misreads_left_padding(biased)) == (True, False)


def hidden_in_front_only(model: Model) -> Model:
    """The model with a mask that, once open, stays open: padding behind a prompt is let in."""
    one, axis = ops.constant(numpy.int64(1)), ops.constant(numpy.int64(1))
    return rewired(model, "attention_mask", None, lambda mask: ops.minimum(ops.cum_sum(mask, axis), one))


def test_visible_padding_after_a_prompt_is_found():
    model = load(export("llama", "ov-stateless"))
    comparison = compare(model, hidden_in_front_only(model), steps=2)
    assert comparison.divergence is not None
    assert (comparison.divergence.sequence, comparison.divergence.step) == (4, 1)
    assert comparison.sequences[4].description.endswith("of 11, 1 and 5 tokens, padded on the right")


def test_a_candidate_may_correct_a_misread_side():
    model = load(export("llama", "ov-stateless"))
    comparison = compare(hidden_in_front_only(model), model, steps=2)
    assert comparison.passed, comparison.summary()
    assert (len(comparison.sequences), comparison.skipped) == (5, ())


def test_a_side_misread_by_both_is_not_compared():
    model = load(export("llama", "ov-stateless"))
    zeros, end, one = (ops.constant(numpy.array([number])) for number in (0, -1, 1))

    def first_let_in(mask: openvino.Output) -> openvino.Node:
        before = ops.slice(ops.pad(mask, [0, 1], [0, 0], "constant"), zeros, end, one, one)
        return ops.maximum(mask, before)

    comparison = compare(hidden_in_front_only(model), rewired(model, "attention_mask", None, first_let_in), steps=2)
    assert comparison.passed, comparison.summary()
    assert comparison.skipped[0] == "right padding: the reference has other results for rows alone"


def test_only_padding_sides_of_the_target_are_compared(builder_s):
    """Padding on the right is that of `ort-genai`."""
    comparison = compare(builder_s, builder_s, steps=2, padding="right")
    assert comparison.skipped[:1] == ("left padding: the candidate supports padding on the right",)


def test_outputs_of_other_sizes_in_each_row_are_omitted():
    model = tiny_model("llama")
    softmax = next(model.graph.of_op("Softmax"))
    rewriter = model.rewriter()
    shape = ["batch", 4, "length", "total"]
    rewriter.output("weights", rewriter.op("Identity", softmax.outputs[0], name="copied"), "f32", shape)
    assert rewriter.finish()
    mask = numpy.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    outputs = RowByRow(open_session(model)).forward(numpy.full((2, 5), 7), mask)
    assert set(outputs) == {"logits"}


def test_a_row_of_one_token_returns_its_last_logits():
    model = of_last_token(tiny_model("llama"), "kept")
    mask = numpy.array([[0, 0, 0, 0, 1], [1, 1, 1, 1, 1]])
    outputs = RowByRow(open_session(model)).forward(numpy.full((2, 5), 7), mask)
    assert outputs["logits"].shape[:2] == (2, 1)
