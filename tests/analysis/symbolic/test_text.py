"""Expressions in words."""

from __future__ import annotations

import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import ONE, ZERO, number
from graphpass.analysis.symbolic.text import expression_text

PAST, LENGTH = ex.length("past"), ex.length("length", 1)
Q, K = ex.index("q", LENGTH), ex.index("k", ex.add(PAST, LENGTH))
IS_TOKEN = ex.read("attention_mask", (K,), "bool")


def test_order_of_operands_does_not_depend_on_creation():
    def written(*names):
        made = {name: ex.read(name, (), "real") for name in names}
        one, other = made["first made"], made["made after"]
        return [expression_text(build(one, other)) for build in (ex.add, ex.multiply, ex.equal)]

    assert written("first made", "made after") == written("made after", "first made")


def test_expressions_are_printed_in_words():
    window = ex.conjunction(ex.at_most(K, ex.add(PAST, Q)), ex.less(ex.subtract(ex.add(PAST, Q), number(8)), K))
    assert {"k <= past + q", "past + q <= 7 + k"} == {expression_text(part) for part in window.args}


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (ex.add(K, ONE), "k + 1"),
        (ex.subtract(K, PAST), "k - past"),
        (ex.subtract(number(3), ex.multiply(number(2), K)), "3 - 2 * k"),
        (ex.multiply(K, number(-2)), "-2 * k"),
        (ex.equal(K, ex.add(Q, ONE)), "1 + q == k"),
        (ex.at_most(K, PAST), "k <= past"),
        (ex.negate(IS_TOKEN), "not attention_mask[k]"),
        (ex.choose(IS_TOKEN, K, ZERO), "(k if attention_mask[k] else 0)"),
        (ex.TRUE, "true"),
        (number(0.5), "0.5"),
    ],
)
def test_operators_are_in_infix_notation(expr, text):
    assert expression_text(expr) == text
