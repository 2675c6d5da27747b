"""Conditions decide others by their bounds."""

import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import number
from graphpass.verify.structure.conditions import decide, order, place_of

QUERY, KEY = ex.index("query", ex.length("length", 1)), ex.index("key", ex.length("length", 1))
EXPERT = ex.index("expert", number(4))


def within(distance):
    return ex.at_most(ex.subtract(QUERY, KEY), number(distance))


@pytest.mark.parametrize(
    ("condition", "holds", "other", "expected"),
    [
        (within(3), True, within(5), True),
        (within(3), True, within(2), None),
        (within(3), False, within(2), False),
        (within(3), False, within(5), None),
        (within(3), True, ex.less(number(3), ex.subtract(QUERY, KEY)), False),
        (ex.equal(QUERY, KEY), True, within(0), True),
        (ex.equal(QUERY, KEY), False, within(0), None),
        (within(-1), True, ex.equal(QUERY, KEY), False),
        (ex.less(EXPERT, number(1)), True, ex.equal(EXPERT, number(0)), True),
        (ex.less(EXPERT, number(2)), False, ex.equal(EXPERT, number(1)), False),
    ],
)
def test_conditions_decide_others(condition, holds, other, expected):
    assert decide(condition, holds, other) is expected


def test_an_index_has_the_place_that_a_condition_asks_for_if_that_is_within_its_range():
    other = ex.index("other", number(4))
    assert place_of(ex.equal(EXPERT, other), EXPERT) is other
    assert place_of(ex.equal(EXPERT, ex.add(other, number(1))), EXPERT) is None
    assert place_of(ex.equal(ex.multiply(number(2), EXPERT), other), EXPERT) is None


def test_conditions_follow_those_that_they_contain():
    is_ahead = ex.at_most(QUERY, KEY)
    distance = ex.choose(is_ahead, ex.subtract(KEY, QUERY), ex.subtract(QUERY, KEY))
    assert all(order(is_ahead) < order(ex.at_most(distance, number(most))) for most in range(4, 20))
