"""Conditions decide others by their bounds."""

import itertools
import random

import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.evaluate import value_at
from graphpass.analysis.symbolic.expressions import ONE, ZERO, number
from graphpass.verify.structure.conditions import condition_order, count_of, decide, place_of, without_digits

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


DIGITS = tuple(ex.index(f"digit {size}", number(size)) for size in (2, 3, 4, 8))


@pytest.mark.parametrize(
    ("factors", "bound", "expected"),
    [
        ((1, 0, 0, 2), 7, ((0, 0, 0, 1), 3)),
        ((1, 0, 0, 2), 6, None),
        ((4, 0, 1, 0), 3, ((1, 0, 0, 0), 0)),
        ((4, 0, 0, 1), 3, None),
        ((1, 2, 0, 6), 11, ((0, 0, 0, 1), 1)),
        ((1, 2, 0, 6), 13, ((0, 1, 0, 3), 6)),
    ],
)
def test_digits_that_cannot_change_a_bound_are_dropped(factors, bound, expected):
    condition = ex.at_most(weighted(factors), number(bound))
    found = without_digits(condition)
    assert found is (condition if expected is None else ex.at_most(weighted(expected[0]), number(expected[1])))


def weighted(factors):
    return ex.add(*(ex.multiply(number(factor), digit) for factor, digit in zip(factors, DIGITS, strict=True)))


@pytest.mark.parametrize("seed", range(40))
def test_dropped_digits_do_not_change_a_condition(seed):
    draw = random.Random(seed)
    factors = [draw.choice((-6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8)) for _ in DIGITS]
    condition = ex.at_most(weighted(factors), number(draw.randint(-12, 12)))
    for rule in (condition, ex.negate(condition)):
        found = without_digits(rule)
        for values in itertools.product(*(range(digit.args[1].as_number) for digit in DIGITS)):
            known = dict(zip(DIGITS, map(number, values), strict=True))
            assert ex.substitute(found, known) is ex.substitute(rule, known)


def test_lengths_and_open_sizes_stay_in_bounds():
    for digit in (QUERY, ex.length("past")):
        condition = ex.at_most(ex.add(digit, ex.multiply(number(2), DIGITS[3])), number(7))
        assert without_digits(condition) is condition


def test_an_equation_fixes_an_index_if_within_its_range():
    other = ex.index("other", number(4))
    assert place_of(ex.equal(EXPERT, other), EXPERT) is other
    assert place_of(ex.equal(EXPERT, ex.add(other, number(1))), EXPERT) is None
    assert place_of(ex.equal(ex.multiply(number(2), EXPERT), other), EXPERT) is None


def test_conditions_imply_weaker_ones():
    is_ahead = ex.at_most(QUERY, KEY)
    distance = ex.choose(is_ahead, ex.subtract(KEY, QUERY), ex.subtract(QUERY, KEY))
    assert all(condition_order(is_ahead) < condition_order(ex.at_most(distance, number(most))) for most in range(4, 20))


@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("offset", [-2, 0, 1])
def test_keys_between_two_bounds_are_counted(window, offset):
    past, length = ex.length("past"), ex.length("length", 1)
    total = ex.add(past, length)
    query, key = ex.index("query", length), ex.index("key", total)
    position = ex.add(past, query, number(offset))
    seen = ex.at_most(key, position)
    if window is not None:
        seen = ex.conjunction(seen, ex.less(ex.subtract(position, key), number(window)))
    count = count_of(ex.choose(seen, ONE, ZERO), key)
    assert count is not None
    for held, new in itertools.product(range(5), range(1, 4)):
        for at in range(new):
            values = {past: held, length: new, query: at}
            expected = sum(value_at(seen, values | {key: place}, None) for place in range(held + new))
            assert value_at(count, values, None) == expected


def test_other_sums_are_not_counts():
    other = ex.index("other", number(4))
    assert count_of(ex.choose(ex.equal(EXPERT, other), ONE, ZERO), EXPERT) is None
    assert count_of(ex.choose(ex.at_most(EXPERT, other), number(2), ZERO), EXPERT) is None
    assert count_of(ex.choose(ex.at_most(ex.multiply(number(2), EXPERT), other), ONE, ZERO), EXPERT) is None


def test_remainders_and_quotients_of_indices_are_bounded():
    head, length = ex.index("head", number(5)), ex.length("length", 1)
    half, rest = ex.floor_divide(head, number(2)), ex.modulo(length, number(8))
    assert is_natural(ex.subtract(number(2), half))
    assert not is_natural(ex.subtract(number(1), half))
    assert is_natural(ex.subtract(number(7), rest))
    assert not is_natural(ex.subtract(number(6), rest))
    assert is_natural(ex.floor_divide(length, number(8)))
    assert not is_natural(ex.floor_divide(ex.subtract(length, number(2)), number(8)))
