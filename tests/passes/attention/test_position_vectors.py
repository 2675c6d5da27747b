"""Positions without a batch axis: only those that scale activations alone are read from the input."""

from graphpass.passes.attention.position_vectors import find_vector_uses
from graphpass.testing import parse_model

GRAPH = """%input_ids = Parameter : i64[b, n]
%past = Parameter : f32[b, 2, p, 4]
%hidden = Parameter : f32[b, n, 2, 4]
%ids_shape = ShapeOf(%input_ids) : i64[2]
%new = Gather(%ids_shape, 1, 0) : i64[]
%past_shape = ShapeOf(%past) : i64[4]
%start = Gather(%past_shape, 2, 0) : i64[]
%end = Add(%start, %new) : i64[]
%places = Range(%start, %end, 1) : i64[?]
%real = Convert(%places) {to=f32} : f32[?]
%factor = Multiply(%real, 0.5) : f32[?]
%length = Reshape(%new, [1]) {zero_keeps=false} : i64[1]
%shape = Concat([1], %length, [1, 1]) {axis=0} : i64[4]
%row = Reshape(%factor, %shape) {zero_keeps=false} : f32[1, ?, 1, 1]
%scaled = Multiply(%hidden, %row) : f32[b, n, 2, 4]
%query = Transpose(%scaled, [0, 2, 1, 3]) : f32[b, 2, n, 4]
%key = Concat(%past, %query) {axis=2} : f32[b, 2, t, 4]
%attended = ScaledDotProductAttention(%query, %key, %key) : f32[b, 2, n, 4]
Result(%attended) {name=logits}
Result(%key) {name=present}
"""


def uses_of(text):
    return list(find_vector_uses(parse_model(text, "openvino")))


def test_factors_of_activations_are_found():
    (found,) = uses_of(GRAPH)
    assert found.use.node.op == "Convert"
    assert len(found.computed) == 2
    assert [node.outputs[0].rank for node in found.reshapes] == [4]


def test_positions_that_end_elsewhere_too_are_left():
    assert uses_of(GRAPH + "Result(%factor) {name=other}\n") == []
