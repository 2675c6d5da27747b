"""The tensor in which heads are merged, if no other operator reads the tensors before it."""

import pytest

from graphpass.passes.attention.merged_heads import merged_heads
from graphpass.testing import parse_model

MODEL = """%x = Parameter : f32[b, 2, n, 4]
%a = Tanh(%x)
%t = Transpose(%a) {order=[0, 2, 1, 3]}
%y = Reshape(%t, [0, 0, 8])
Result(%y) {name=y}"""


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "", "y"),
        ("[0, 0, 8]", "[0, -1, 8]", "y"),
        ("order=[0, 2, 1, 3]", "order=[0, 1, 2, 3]", None),
        ("[0, 0, 8]", "[0, 0, 2, 4]", None),
        ("[0, 0, 8]", "[0, -1, 4]", None),
        ("Result(%y)", "Result(%t) {name=z}\nResult(%y)", None),
        ("Result(%y)", "Result(%a) {name=z}\nResult(%y)", None),
        ("%y = Reshape(%t, [0, 0, 8])", "%y = Relu(%t)", None),
    ],
)
def test_transpose_and_reshape_without_other_users(old, new, found):
    model = parse_model(MODEL.replace(old, new))
    (node,) = model.graph.of_op("Tanh")
    value = merged_heads(model, node.outputs[0], 8)
    assert (value and value.name) == found
