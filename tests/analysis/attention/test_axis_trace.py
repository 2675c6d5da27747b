"""Labels of axes, upstream through operators."""

import pytest

from graphpass.analysis.attention.axis_trace import (
    BHLD,
    PART,
    TracedValue,
    before,
    copies_merged,
    holds_integers,
    trace_axes,
)
from graphpass.testing import parse_model

INPUTS = """
%x = Parameter : f32[batch, 2, n, 8]
%flat = Parameter : f32[batch, n, 16]
%packed = Parameter : f32[2, batch, 2, n, 8]
%small = Parameter : u8[batch, 2, n, 8]
%scale = Parameter : f32[batch, 2, n, 1]
%id = Parameter : i64[]
"""
B, H, L, D = BHLD


def last(text, dialect="openvino"):
    graph = parse_model(f"{INPUTS}{text}\nResult(%y) {{name=y}}", dialect).graph
    return graph, graph.writes["y"].source()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("%y = Transpose(%x) {order=[0, 1, 3, 2]}", [("x", (B, H, D, L), None)]),
        ("%y = Reshape(%flat, [0, 0, 2, 8])", [("flat", (B, H, (L, D)), None)]),
        ("%y = Slice(%x, [0], [4]) {axes=[2]}", [("x", BHLD, "slice")]),
        ("%y = Gather(%packed, %id) {axis=0}", [("packed", (PART, *BHLD), "part")]),
        ("%y = Concat(%x, %x) {axis=2}", [("x", BHLD, "join"), ("x", BHLD, "join")]),
        ("%y = Add(%x, %scale)", [("x", BHLD, "arithmetic"), ("scale", BHLD, "arithmetic")]),
        ("%y = Multiply(%x, 0.5)", [("x", BHLD, None)]),
        ("%y = MatMul(%x, %x) {transpose_b=true}", []),
        ("%w = Constant : f32[8, 8]\n%y = MatMul(%x, %w)", [("x", BHLD, "weights")]),
        ("%c = Convert(%small) {to=f32}\n%y = Multiply(%c, %scale)",
         [("c", BHLD, "dequantized"), ("scale", BHLD, "scale")]),
        ("%y = Softmax(%x) {axis=3}", []),
    ],
)  # fmt: skip
def test_operators_pass_labels_on(text, found):
    graph, value = last(text)
    steps = before(graph, value, BHLD)
    made = [(step.value.name, step.labels, None if step.passed is None else step.passed.kind) for step in steps]
    assert made == found


@pytest.mark.parametrize(
    ("rank", "labels", "merged"),
    [(5, BHLD, (B, H, None, L, D)), (4, BHLD, None), (4, (B, L, D), None), (4, (H, L, D), (H, None, L, D))],
)
def test_copies_of_heads_stand_after_them(rank, labels, merged):
    assert copies_merged(rank, labels) == merged


def test_values_are_traced_once_with_their_path():
    graph, value = last("%c = Concat(%x, %x) {axis=2}\n%y = Slice(%c, [0], [4]) {axes=[2]}")
    found = list(trace_axes(TracedValue(value, BHLD), lambda place: before(graph, place.value, place.labels)))
    assert [place.value.name for place in found] == ["y", "c", "x"]
    assert [step.kind for step in found[-1].path] == ["slice", "join"]
    assert (found[-1].passed("slice"), found[-1].passed("weights")) == (True, False)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("%y = Convert(%small) {to=f32}", True),
        ("%c = Convert(%small) {to=f32}\n%y = Subtract(%c, %scale)", True),
        ("%c = Convert(%small) {to=f32}\n%y = Multiply(%c, %scale)", False),
        ("%c = Convert(%x) {to=f16}\n%y = Convert(%c) {to=f32}", False),
    ],
)
def test_integers_are_held_until_they_are_scaled(text, found):
    assert holds_integers(*last(text)) is found
