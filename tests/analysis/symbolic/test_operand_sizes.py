"""Integers of small tensors: whole, in part, or unknown."""

import pytest

from graphpass.analysis.symbolic.operand_sizes import LARGEST
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.testing import parse_model

HEAD = "%x = Parameter : f32[b, n, 6]\n%i = Parameter : i64[1]\n%s = ShapeOf(%x)\n"


def read(text):
    model = parse_model(f"{HEAD}{text}\nResult(%y) {{name=y}}")
    (result,) = model.graph.of_op("Result")
    return infer_sizes(model), result.source()


@pytest.mark.parametrize(
    ("text", "integers", "numbers"),
    [
        ("%y = Multiply([2, 3], [4, 5])", 2, [8, 15]),
        ("%y = Gather(%s, [2]) {axis=0}", 1, [6]),
        ("%y = Gather(%s, [1, 2]) {axis=0}", 2, None),
        ("%y = Concat(%i, [3]) {axis=0}", 2, None),
        (f"%y = Add({[3] * LARGEST}, [1])", LARGEST, [4] * LARGEST),
    ],
)
def test_integers_of_shape_arithmetic(text, integers, numbers):
    sizes, value = read(text)
    assert len(sizes.integers(value)) == integers
    found = sizes.numbers(value)
    assert (None if found is None else found.tolist()) == numbers


def test_one_unknown_integer_makes_the_content_unknown():
    sizes, value = read("%y = Concat(%i, [3]) {axis=0}")
    unknown, known = sizes.integers(value)
    assert (unknown, known.as_number) == (None, 3)
    assert sizes.content(value) is None
    assert [size.as_number for size in read("%y = Add([1], [2])")[0].content(read("%y = Add([1], [2])")[1])] == [3]


def test_large_tensors_are_not_read():
    sizes, value = read(f"%y = Add({[3] * (LARGEST + 1)}, [1])")
    assert sizes.integers(value) is None
    assert sizes.shape(value)[0].as_number == LARGEST + 1


def test_nothing_is_unknown():
    sizes, _ = read("%y = Add([1], [2])")
    assert (sizes.shape(None), sizes.content(None), sizes.numbers(None)) == (None, None, None)
