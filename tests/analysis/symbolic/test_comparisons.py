"""Comparisons: ranges decide them, and integers are compared as polynomials."""

from __future__ import annotations

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import ONE, ZERO, number

BATCH, PAST, LENGTH = ex.length("batch", 1), ex.length("past"), ex.length("length", 1)
TOTAL = ex.add(PAST, LENGTH)
B, Q, K = ex.index("b", BATCH), ex.index("q", LENGTH), ex.index("k", TOTAL)


def test_equal_comparisons_are_one_object():
    assert ex.less(K, ex.add(PAST, Q, ONE)) is ex.at_most(K, ex.add(PAST, Q))
    assert ex.at_most(ex.multiply(K, number(4)), number(7)) is ex.at_most(K, ONE)


def test_ranges_decide_comparisons():
    assert ex.less(K, TOTAL) is ex.TRUE
    assert ex.less(K, ZERO) is ex.FALSE
    assert ex.at_most(ex.add(PAST, ex.multiply(number(2), LENGTH)), ONE) is ex.FALSE


def test_rounding_keeps_small_integers():
    few = ex.index("few", number(200))
    assert ex.round_to("bf16", few) is few
    assert ex.round_to("bf16", K).op == "apply"
    assert ex.round_to("f16", number(2049)) is number(2048)


def test_limits_of_integers_bound_no_integer():
    lowest, largest = number(-(2**63)), number(2**63 - 1)
    position = ex.read("position_ids", (B, Q), "int")
    assert ex.minimum(largest, position) is position
    assert ex.maximum(position, lowest) is position
    assert ex.maximum(position, largest) is not position
    assert ex.minimum(position, number(2**31 - 1)) is not position
