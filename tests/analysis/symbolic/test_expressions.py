"""Expressions: normal forms keep the meaning, equal ones are one object."""

from __future__ import annotations

from hypothesis import given, strategies as st

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.evaluate import value_at
from graphpass.analysis.symbolic.expressions import ONE, ZERO, number
from graphpass.analysis.symbolic.text import expression_text

BATCH, PAST, LENGTH = ex.length("batch", 1), ex.length("past"), ex.length("length", 1)
TOTAL = ex.add(PAST, LENGTH)
B, Q, K = ex.index("b", BATCH), ex.index("q", LENGTH), ex.index("k", TOTAL)
ATOMS = [PAST, LENGTH, Q, K, ONE, ZERO, number(3), number(-2)]

#: Builders of integers and conditions, with what they mean in Python.
INTEGERS = [
    (ex.add, lambda one, other: one + other),
    (ex.subtract, lambda one, other: one - other),
    (ex.multiply, lambda one, other: one * other),
    (ex.maximum, max),
    (ex.minimum, min),
]
CONDITIONS = [
    (ex.at_most, lambda one, other: one <= other),
    (ex.less, lambda one, other: one < other),
    (ex.equal, lambda one, other: one == other),
]


@st.composite
def places(draw):
    past, length = draw(st.integers(0, 9)), draw(st.integers(1, 5))
    query, key = draw(st.integers(0, length - 1)), draw(st.integers(0, past + length - 1))
    return {PAST: past, LENGTH: length, Q: query, K: key}


@st.composite
def conditions(draw, place):
    """Draw an expression, and compute the same without expressions."""
    integers = [(atom, value_at(atom, place, None)) for atom in ATOMS]
    found = []
    for _ in range(draw(st.integers(1, 8))):
        build, compute = draw(st.sampled_from(INTEGERS))
        one, other = draw(st.sampled_from(integers)), draw(st.sampled_from(integers))
        integers.append((build(one[0], other[0]), compute(one[1], other[1])))
        build, compute = draw(st.sampled_from(CONDITIONS))
        one, other = draw(st.sampled_from(integers)), draw(st.sampled_from(integers))
        found.append((build(one[0], other[0]), compute(one[1], other[1])))
        chosen = draw(st.sampled_from(found))
        integers.append((ex.choose(chosen[0], one[0], other[0]), one[1] if chosen[1] else other[1]))
        both = draw(st.sampled_from(found)), draw(st.sampled_from(found))
        found.append((ex.conjunction(both[0][0], both[1][0]), both[0][1] and both[1][1]))
        found.append((ex.disjunction(both[0][0], ex.negate(both[1][0])), both[0][1] or not both[1][1]))
    return found + integers


@given(st.data())
def test_normal_forms_keep_the_meaning(data):
    place = data.draw(places())
    for expr, meant in data.draw(conditions(place)):
        assert value_at(expr, place, None) == meant, expression_text(expr)
        if expr.sort == "int" and is_natural(expr):
            assert meant >= 0, expression_text(expr)


def test_equal_expressions_are_one_object():
    assert ex.subtract(ex.add(PAST, Q), K) is ex.add(ex.negative(K), Q, PAST)
    assert ex.less(K, ex.add(PAST, Q, ONE)) is ex.at_most(K, ex.add(PAST, Q))
    assert ex.at_most(ex.multiply(K, number(4)), number(7)) is ex.at_most(K, ONE)
    assert number(1) is not ex.TRUE
    assert ex.substitute(ex.add(PAST, Q), {Q: K}) is ex.add(PAST, K)


def test_ranges_decide_comparisons():
    assert ex.less(K, TOTAL) is ex.TRUE
    assert ex.less(K, ZERO) is ex.FALSE
    assert ex.at_most(ex.add(PAST, ex.multiply(number(2), LENGTH)), ONE) is ex.FALSE
    hides_more = ex.conjunction(ex.at_most(K, Q), ex.at_most(K, ex.add(PAST, Q)))
    assert hides_more is ex.at_most(K, Q)


def test_arithmetic_moves_into_choices_between_constants():
    bit = ex.read("attention_mask", (B, K), "bool")
    hidden = ex.multiply(ex.subtract(ONE, ex.choose(bit, ONE, ZERO)), number(-3e38))
    assert ex.less(hidden, number(-1000)) is ex.negate(bit)


def test_rounding_keeps_small_integers():
    few = ex.index("few", number(200))
    assert ex.round_to("bf16", few) is few
    assert ex.round_to("bf16", K).op == "apply"
    assert ex.round_to("f16", number(2049)) is number(2048)


def test_nested_choices_between_two_numbers_are_linear_in_their_number():
    """Each level negates the condition of the previous one, which doubles the work unless negations are shared."""
    number_read, chosen = ex.read("x", (K,), "int"), K
    for level in range(150):
        chosen = ex.choose(ex.less(number_read, number(level)), chosen, (K, Q)[level % 2])
    for x in (-1, 0, 7, 148, 149, 200):
        meant = next(("kq"[level % 2] for level in reversed(range(150)) if x >= level), "k")
        assert value_at(chosen, {K: 1, Q: 0, PAST: 1, LENGTH: 1}, lambda *_, x=x: x) == (meant == "k")
