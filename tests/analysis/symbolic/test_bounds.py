"""Signs and extreme places of integers, for all lengths of a step."""

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import extreme_place
from graphpass.analysis.symbolic.expressions import ONE, ZERO, number

PAST, LENGTH = ex.length("past"), ex.length("length", 1)
QUERY = ex.index("query", LENGTH)
LAST = ex.subtract(LENGTH, ONE)


def test_the_largest_position_is_the_last():
    assert extreme_place(ex.add(PAST, QUERY), QUERY, is_largest=True) is LAST
    assert extreme_place(ex.add(PAST, QUERY), QUERY, is_largest=False) is ZERO


def test_falling_numbers_are_largest_at_the_first_place():
    falling = ex.subtract(PAST, ex.multiply(number(2), QUERY))
    assert extreme_place(falling, QUERY, is_largest=True) is ZERO
    assert extreme_place(falling, QUERY, is_largest=False) is LAST


def test_numbers_that_do_not_depend_on_the_index_are_largest_anywhere():
    assert extreme_place(PAST, QUERY, is_largest=True) is not None


def test_other_numbers_have_no_known_place():
    read = ex.read("position_ids", (ZERO, QUERY), "int")
    turning = ex.multiply(QUERY, ex.subtract(PAST, number(3)))
    entry = ex.index("entry", PAST)
    for expr, index in ((read, QUERY), (turning, QUERY), (ex.multiply(QUERY, QUERY), QUERY), (entry, entry)):
        assert extreme_place(expr, index, is_largest=True) is None
