"""Shapes as text."""

import pytest

from graphpass.ir.types import is_fixed, shape_text


@pytest.mark.parametrize(
    ("shape", "fixed", "text", "plain"),
    [
        (("batch", 2, None), False, "[batch, 2, ?]", "[?, 2, ?]"),
        ((0, 2), True, "[0, 2]", "[0, 2]"),
        ((), True, "[]", "[]"),
        (("", 1), False, "[?, 1]", "[?, 1]"),
        (None, False, "of any rank", "of any rank"),
    ],
)
def test_unknown_sizes_are_question_marks(shape, fixed, text, plain):
    assert is_fixed(shape) is fixed
    assert shape_text(shape) == text
    assert shape_text(shape, symbols=False) == plain
