"""Constant shapes of Reshapes."""

import pytest

from graphpass.analysis.symbolic.constant_shape import constant_shape
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.testing import parse_model

MODEL = """
%x = Parameter : f32[batch, n, 16]
%other = Parameter : f32[m, 2]
%shape = ShapeOf(%x)
%batch = Gather(%shape, [0]) {{axis=0}}
%n = Gather(%shape, [1]) {{axis=0}}
%others = ShapeOf(%other)
%m = Gather(%others, [0]) {{axis=0}}
%target = Concat({}) {{axis=0}}
%y = Reshape(%x, %target)
Result(%y) {{name=y}}
"""


@pytest.mark.parametrize(
    ("parts", "shape"),
    [
        ("%batch, %n, [2], [8]", [0, 0, 2, 8]),
        ("%n, %batch, [16]", None),
        ("%batch, [-1], [8]", [0, -1, 8]),
        ("%batch, [-1], %m", None),
        ("%batch, %m, [16]", [0, 0, 16]),
        ("[1], %n, [-1]", [1, 0, -1]),
    ],
)
def test_computed_sizes_are_copied_or_inferred(parts, shape):
    model = parse_model(MODEL.format(parts))
    (reshape,) = model.graph.of_op("Reshape")
    assert constant_shape(reshape, model.analysis(infer_sizes)) == shape
