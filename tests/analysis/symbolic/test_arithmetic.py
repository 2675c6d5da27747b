"""Arithmetic: equal sums are one object."""

from __future__ import annotations

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import ONE, ZERO, number

BATCH, PAST, LENGTH = ex.length("batch", 1), ex.length("past"), ex.length("length", 1)
TOTAL = ex.add(PAST, LENGTH)
B, Q, K = ex.index("b", BATCH), ex.index("q", LENGTH), ex.index("k", TOTAL)


def test_equal_sums_are_one_object():
    assert ex.subtract(ex.add(PAST, Q), K) is ex.add(ex.negative(K), Q, PAST)
    assert number(1) is not ex.TRUE


def test_arithmetic_moves_into_choices_between_constants():
    bit = ex.read("attention_mask", (B, K), "bool")
    hidden = ex.multiply(ex.subtract(ONE, ex.choose(bit, ONE, ZERO)), number(-3e38))
    assert ex.less(hidden, number(-1000)) is ex.negate(bit)
