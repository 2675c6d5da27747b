"""Substitution: the result is normalized as expressions built from the replacements."""

from __future__ import annotations

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import ONE

BATCH, PAST, LENGTH = ex.length("batch", 1), ex.length("past"), ex.length("length", 1)
TOTAL = ex.add(PAST, LENGTH)
B, Q, K = ex.index("b", BATCH), ex.index("q", LENGTH), ex.index("k", TOTAL)


def test_parts_are_replaced_and_the_rest_is_normalized():
    assert ex.substitute(ex.add(PAST, Q), {Q: K}) is ex.add(PAST, K)
    assert ex.substitute(ex.less(K, ex.add(PAST, Q)), {Q: ex.subtract(K, PAST)}) is ex.FALSE


def test_replacements_are_not_searched():
    assert ex.substitute(ex.subtract(PAST, Q), {PAST: Q, Q: PAST}) is ex.subtract(Q, PAST)
    assert ex.substitute(Q, {PAST: ONE}) is Q
