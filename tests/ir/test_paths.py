"""Shortest data paths between operators."""

import pytest

from graphpass.ir.paths import shortest_way
from graphpass.testing import parse_model

MODEL = parse_model("""
%x = Parameter : f32[n, 4]
%relu = Relu(%x)
%tanh = Tanh(%relu)
%sum = Add(%tanh, 1.0)
%shape = ShapeOf(%relu)
%flat = Reshape(%sum, %shape)
%y = Concat(%sum, %flat) {axis=0}
Result(%y) {name=y}""")


@pytest.mark.parametrize(
    ("start", "end", "way"),
    [
        ("Tanh", "Concat", ["Tanh", "Add", "Concat"]),
        ("Relu", "Reshape", ["Relu", "Tanh", "Add", "Reshape"]),
        ("Relu", "Relu", ["Relu"]),
        ("Reshape", "Add", []),
        ("Concat", "Relu", []),
    ],
)
def test_paths_lead_through_data(start, end, way):
    (first,), (last,) = MODEL.graph.of_op(start), MODEL.graph.of_op(end)
    assert [node.op for node in shortest_way(MODEL, first, last)] == way
