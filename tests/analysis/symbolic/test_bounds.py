"""Signs and quotients of expressions, by the ranges of indices and lengths."""

from __future__ import annotations

import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import divided, is_natural, quotient
from graphpass.analysis.symbolic.expressions import ONE, ZERO, number

BATCH, PAST, LENGTH = ex.length("batch", 1), ex.length("past"), ex.length("length", 1)
TOTAL = ex.add(PAST, LENGTH)
B, Q, K = ex.index("b", BATCH), ex.index("q", LENGTH), ex.index("k", TOTAL)
SMALL = ex.index("i", number(10))
FREE = ex.read("position_ids", (B, Q), "int")


@pytest.mark.parametrize(
    ("expr", "natural"),
    [
        (ZERO, True),
        (number(-1), False),
        (ex.subtract(LENGTH, ONE), True),
        (ex.subtract(PAST, ONE), False),
        (ex.subtract(ex.subtract(TOTAL, ONE), K), True),
        (ex.subtract(ex.subtract(TOTAL, number(2)), K), False),
        (ex.subtract(ex.multiply(BATCH, LENGTH), Q), True),
        (ex.subtract(ex.multiply(PAST, LENGTH), Q), False),
        (ex.multiply(Q, Q), False),
        (ex.negative(Q), False),
        (FREE, False),
        (ex.running_sum(K, K, Q), True),
        (ex.running_sum(ex.subtract(K, ONE), K, Q), False),
    ],
)
def test_signs_follow_from_ranges(expr, natural):
    assert is_natural(expr) is natural


def test_flat_indices_divide():
    assert divided(ex.add(ex.multiply(B, TOTAL), K), TOTAL) == (B, K)
    assert divided(ex.add(ex.multiply(B, TOTAL), Q, LENGTH), TOTAL) is None
    assert quotient(ex.multiply(BATCH, TOTAL), BATCH) is TOTAL
    assert quotient(TOTAL, BATCH) is None


@pytest.mark.parametrize(
    ("expr", "divisor", "parts"),
    [
        (K, ONE, (K, ZERO)),
        (ex.add(ex.multiply(K, number(10)), SMALL), number(10), (K, SMALL)),
        (ex.add(ex.multiply(K, number(10)), SMALL, number(20)), number(10), (ex.add(K, number(2)), SMALL)),
        (ex.add(ex.multiply(K, number(10)), SMALL), number(9), None),
        (K, number(0), None),
        (K, number(-1), None),
        (Q, TOTAL, (ZERO, Q)),
        (K, LENGTH, None),
    ],
)
def test_remainders_are_below_the_divisor(expr, divisor, parts):
    assert divided(expr, divisor) == parts


@pytest.mark.parametrize(
    ("expr", "divisor", "exact"),
    [
        (ex.multiply(TOTAL, ex.add(TOTAL, ONE)), ex.add(TOTAL, ONE), TOTAL),
        (ex.multiply(number(6), K), number(3), ex.multiply(number(2), K)),
        (ex.multiply(number(5), K), number(3), None),
        (K, ZERO, None),
        (ex.add(ex.multiply(BATCH, TOTAL), ONE), BATCH, None),
    ],
)
def test_inexact_quotients_are_none(expr, divisor, exact):
    assert quotient(expr, divisor) is exact
