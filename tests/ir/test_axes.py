"""Axes of outputs, by the axes of the first input that they come from."""

from dataclasses import replace

import pytest

from graphpass.ir.axes import AxisEffect, axis_effect
from graphpass.testing import parse_model

INPUTS = """
%x = Parameter : f32[batch, 3, 4]
%ids = Parameter : i64[batch, 2]
%id = Parameter : i64[]
"""


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("Relu(%x)", AxisEffect("elementwise", (0, 1, 2))),
        ("Softmax(%x) {axis=2}", AxisEffect("same", (0, 1, 2))),
        ("Transpose(%x) {order=[2, 0, 1]}", AxisEffect("move", (2, 0, 1))),
        ("Unsqueeze(%x) {axes=[1, 4]}", AxisEffect("move", (0, None, 1, 2, None))),
        ("Concat(%x, %x) {axis=-1}", AxisEffect("join", (0, 1, 2), (2,))),
        ("Slice(%x, [0], [2]) {axes=[1]}", AxisEffect("cut", (0, 1, 2), (1,))),
        ("Gather(%x, %id) {axis=1}", AxisEffect("take", (0, 2), removed=(1,))),
        ("Gather(%x, [0, 0]) {axis=1}", AxisEffect("take", (0, 1, 2), (1,))),
        ("Gather(%x, %ids) {axis=1}", AxisEffect("rows", (0, None, None, 2), (1, 2), (1,))),
        ("Broadcast(%x, [5, 1, 3, 4])", AxisEffect("copy", (None, 0, 1, 2), (0, 1, 2, 3))),
    ],
)
@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_axes_of_operators(dialect, line, effect):
    model = parse_model(f"{INPUTS}%y = {line}\nResult(%y) {{name=y}}", dialect)
    node = model.graph.producer(model.graph.writes["y"].source())
    assert axis_effect(node, node.outputs[0].rank) == effect


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("Reshape(%x, [0, -1])", 2),
        ("Transpose(%x) {order=[2, 0, 1]}", 4),
        ("Slice(%x, [0], [2]) {axes=[2]}", 2),
        ("NonZero(%x)", 2),
    ],
)
def test_unknown_effects_are_none(line, rank):
    model = parse_model(f"{INPUTS}%y = {line}\nResult(%y) {{name=y}}", "openvino")
    assert axis_effect(model.graph.producer(model.graph.writes["y"].source()), rank) is None


@pytest.mark.parametrize(("indices", "along"), [((3, 2), (0,)), ((2, 2), (0,)), ((1, 4, 2), (0,)), ((3, 1, 2), (1,))])
def test_a_scatter_writes_along_axes_that_its_indices_do_not_cover(indices, along):
    text = f"""
%x = Parameter : f32[3, 4, 5]
%at = Parameter : i64{list(indices)}
%new = Parameter : f32{[*indices[:-1], 5]}
%y = ScatterNDUpdate(%x, %at, %new)
Result(%y) {{name=y}}"""
    (node,) = parse_model(text, "openvino").graph.of_op("ScatterNDUpdate")
    assert axis_effect(node, 3).along == (along if len(indices) == 3 else (0, 1))


@pytest.mark.parametrize(
    ("axes", "rank", "effect"),
    [
        ((1,), 3, AxisEffect("reduce", (0, 1, 2), (1,))),
        ((0, 2), 1, AxisEffect("reduce", (1,), removed=(0, 2))),
        (None, 1, None),
    ],
)
def test_reductions_keep_or_remove_their_axes(axes, rank, effect):
    (node,) = parse_model(f"{INPUTS}%y = ReduceMax(%x) {{axes=[1]}}\nResult(%y) {{name=y}}").graph.of_op("ReduceMax")
    assert axis_effect(replace(node, attributes={} if axes is None else {"axes": axes}), rank) == effect
