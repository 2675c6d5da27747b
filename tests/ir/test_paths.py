"""Shortest data paths between operators."""

import pytest

from graphpass.ir.paths import shortest_way
from graphpass.testing import parse_model

MODEL = parse_model("""
%x = Parameter : f32[n, 4]
%relu = Relu(%x)
%tanh = Tanh(%relu)
%sum = Add(%tanh, %relu)
%shape = ShapeOf(%relu)
%flat = Reshape(%tanh, %shape)
%y = Concat(%sum, %flat) {axis=0}
Result(%y) {name=y}""")


@pytest.mark.parametrize(
    ("start", "end", "way"),
    [
        ("Relu", "Add", ["Relu", "Add"]),
        ("Relu", "Reshape", ["Relu", "Tanh", "Reshape"]),
        ("Relu", "Relu", ["Relu"]),
        ("Add", "Reshape", []),
        ("Concat", "Relu", []),
    ],
)
def test_paths_lead_through_data(start, end, way):
    (first,), (last,) = MODEL.graph.of_op(start), MODEL.graph.of_op(end)
    assert [node.op for node in shortest_way(MODEL, first, last)] == way
