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
