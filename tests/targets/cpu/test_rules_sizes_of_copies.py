"""Test readers of sizes between a cache and attention: the CPU plugin fuses, or does not."""

from __future__ import annotations

import openvino
import pytest
from openvino import opset13 as ops
from support.attention_graphs import integers
from support.loaded import openvino_model

from graphpass.targets import check_model


def target_of_own_size(copies: openvino.Node, reshape: openvino.Node, _: openvino.Model) -> None:
    """The copies are as large as what is copied, times how many there are."""
    sizes = ops.shape_of(copies.input_value(0))
    copies.input(1).replace_source_output(ops.maximum(sizes, copies.input_value(1)).output(0))


def reshaped_by_size_of_source(copies: openvino.Node, reshape: openvino.Node, _: openvino.Model) -> None:
    reshape.input(1).replace_source_output(shape(ops.shape_of(copies.input_value(0)), reshape))


def reshaped_by_own_size(copies: openvino.Node, reshape: openvino.Node, _: openvino.Model) -> None:
    reshape.input(1).replace_source_output(shape(ops.shape_of(copies.output(0)), reshape))


def size_told(copies: openvino.Node, reshape: openvino.Node, model: openvino.Model) -> None:
    """It is an output, besides."""
    sizes = ops.shape_of(reshape.output(0))
    model.add_results([ops.result(sizes)])


def size_of_cache_told(copies: openvino.Node, reshape: openvino.Node, model: openvino.Model) -> None:
    present = copies.input_value(0).get_node().input_value(0)
    model.add_results([ops.result(ops.shape_of(present))])


def shape(sizes: openvino.Node, reshape: openvino.Node) -> openvino.Output:
    """Of ``[batch, heads, copies, sequence, head_dim]`` that of attention's operand."""
    fixed = reshape.get_output_partial_shape(0)
    batch, sequence = (ops.gather(sizes, integers(axis), integers(0)) for axis in (0, 3))
    heads, head_dim = (integers(fixed[axis].get_length()) for axis in (1, 3))
    return ops.concat([batch, heads, sequence, head_dim], 0).output(0)


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (target_of_own_size, "not fused"),
        (size_told, "not fused"),
        (reshaped_by_size_of_source, "fused"),
        (reshaped_by_own_size, "fused"),
        (size_of_cache_told, "fused"),
    ],
)
def test_predictions_hold_on_the_cpu_plugin(change, verdict):
    model = openvino_model("llama").clone()
    copies = next(op for op in model.ov_model.get_ordered_ops() if is_copying(op))
    (reader,) = (use for use in copies.output(0).get_target_inputs() if use.get_node().get_type_name() == "Reshape")
    change(copies, reader.get_node(), model.ov_model)
    model.ov_model.validate_nodes_and_infer_types()
    model.mark_edited()
    report = check_model(model, "cpu")
    assert report.confirmation.outcome == "confirmed", report.confirmation.contradictions
    first = min((finding for finding in report.findings if finding.subject == "attention"), key=lambda one: one.layer)
    assert first.verdict == verdict
    assert verdict == "fused" or "its size is used by" in first.reason


def is_copying(op: openvino.Node) -> bool:
    return op.get_type_name() == "Broadcast" and op.input_value(0).get_node().get_type_name() == "Unsqueeze"
