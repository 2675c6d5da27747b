"""Conditions: implied operands are dropped, and choices share their negations."""

from __future__ import annotations

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.evaluate import value_at
from graphpass.analysis.symbolic.expressions import number

BATCH, PAST, LENGTH = ex.length("batch", 1), ex.length("past"), ex.length("length", 1)
TOTAL = ex.add(PAST, LENGTH)
B, Q, K = ex.index("b", BATCH), ex.index("q", LENGTH), ex.index("k", TOTAL)


def test_implied_comparisons_are_dropped():
    hides_more = ex.conjunction(ex.at_most(K, Q), ex.at_most(K, ex.add(PAST, Q)))
    assert hides_more is ex.at_most(K, Q)


def test_nested_choices_between_two_numbers_are_linear_in_their_number():
    """Each level negates the condition of the previous one, which doubles the work unless negations are shared."""
    number_read, chosen = ex.read("x", (K,), "int"), K
    for level in range(150):
        chosen = ex.choose(ex.less(number_read, number(level)), chosen, (K, Q)[level % 2])
    for x in (-1, 0, 7, 148, 149, 200):
        meant = next(("kq"[level % 2] for level in reversed(range(150)) if x >= level), "k")
        assert value_at(chosen, {K: 1, Q: 0, PAST: 1, LENGTH: 1}, lambda *_, x=x: x) == (meant == "k")
