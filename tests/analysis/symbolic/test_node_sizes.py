"""Sizes of the outputs of one operator, from its operands as arrays."""

import numpy
import pytest

from graphpass.analysis.symbolic.node_sizes import NodeSizes
from graphpass.testing import parse_model

X = numpy.zeros((2, 3, 4), numpy.float32)
HEAD = "%x = Parameter : f32[b, n, d]\n%i = Parameter : i64[k]\n%w = Parameter : f32[d, 5]\n"


def of_output(text, **operands):
    model = parse_model(f"{HEAD}{text}\nResult(%y) {{name=y}}")
    (result,) = model.graph.of_op("Result")
    node = model.graph.producer(result.source())
    arrays = {value: operands[value.name] for value in node.sources}
    sizes = NodeSizes(model.graph, arrays).of_output(node, result.source())
    return None if sizes is None else [size.as_number for size in sizes]


@pytest.mark.parametrize(
    ("text", "integers", "expected"),
    [
        ("%y = Reshape(%x, %i) : f32[p, q]", [0, -1], [2, 12]),
        ("%y = Reshape(%x, %i) : f32[p, q]", [4, 6], [4, 6]),
        ("%y = Broadcast(%x, %i) : f32[p, q, r]", [2, 3, 4], [2, 3, 4]),
        ("%y = Gather(%x, %i) {axis=1}", [0, 0, 0, 0, 0], [2, 5, 4]),
        ("%y = onnx.ConstantOfShape(%i) : f32[p, q]", [7, 8], [7, 8]),
    ],
)
def test_integers_of_operands_are_sizes(text, integers, expected):
    assert of_output(text, x=X, i=numpy.array(integers)) == expected


def test_sizes_are_those_of_the_arrays():
    assert of_output("%y = MatMul(%x, %w)", x=X, w=numpy.zeros((4, 5))) == [2, 3, 5]
    assert of_output("%y = Concat(%x, %x) {axis=0}", x=X) == [4, 3, 4]


def test_hidden_integers_are_unknown():
    hidden = numpy.ma.masked_array([0, 24], [False, True])
    assert of_output("%y = Reshape(%x, %i) : f32[p, q]", x=X, i=hidden) is None
