"""Equalities between sizes."""

import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.equal_sizes import (
    EqualSizes,
    dimension,
    dimension_name,
    dimensions,
    is_linear,
    is_negative,
    offset,
    size_at,
)
from graphpass.analysis.symbolic.expressions import number

A, B, C, D = (dimension(name) for name in "abcd")
SUM = ex.add(ex.multiply(number(2), B), A, number(3))


def joined(*pairs):
    sizes = EqualSizes()
    for left, right in pairs:
        sizes.join(left, right)
    return sizes


def test_linear_sizes_have_dimensions_and_a_constant():
    assert [(dimension_name(each), factor) for each, factor in dimensions(SUM)] == [("a", 1), ("b", 2)]
    assert offset(SUM) == 3
    assert size_at(SUM, {A: 10, B: 5}.__getitem__) == 23
    assert is_linear(SUM)
    assert not is_linear(ex.multiply(A, B))


@pytest.mark.parametrize(("size", "negative"), [(number(-2), True), (ex.negative(A), True), (ex.subtract(A, B), False)])
def test_bounds_from_the_end_are_negative(size, negative):
    assert is_negative(size) is negative


@pytest.mark.parametrize(
    ("pairs", "size", "resolved"),
    [
        ([(A, B)], A, B),
        ([(A, B), (B, C)], A, C),
        ([(A, number(4))], ex.add(A, B), ex.add(B, number(4))),
        ([(ex.multiply(number(2), A), number(8))], A, number(4)),
        ([(ex.add(A, number(1)), ex.add(B, number(1)))], A, B),
        ([(A, ex.add(B, C))], A, ex.add(B, C)),
        ([(ex.add(B, C), A)], A, ex.add(B, C)),
        ([(A, B), (C, A), (B, number(2))], ex.multiply(A, C), number(4)),
    ],
)
def test_sizes_are_replaced_by_their_equals(pairs, size, resolved):
    sizes = joined(*pairs)
    assert sizes.resolve(size) is resolved
    assert sizes.is_joined(A)
    assert not sizes.is_joined(D)


@pytest.mark.parametrize(
    "pair",
    [
        (ex.multiply(number(2), A), number(7)),
        (A, number(-1)),
        (ex.add(A, B), ex.add(C, D)),
        (A, ex.subtract(B, C)),
        (ex.add(A, B, C), A),
        (A, ex.add(A, A, B, C)),
        (A, A),
    ],
)
def test_equalities_that_determine_no_size_are_not_kept(pair):
    assert joined(pair).joins == 0
