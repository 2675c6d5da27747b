"""Hash-consed expressions: identity, polynomials, walks and searches."""

import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.nodes import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    contains,
    from_polynomial,
    index,
    length,
    make,
    number,
    polynomial,
    product,
    read,
    total,
    uses,
    walk,
    walk_outside,
)

N, M = length("n"), length("m")
SUM = ex.add(N, ex.multiply(number(3), M))


def test_equal_parts_are_one_expression():
    assert length("n") is N
    assert length("n", 1) is not N
    assert index("i", N) is index("i", N)
    assert index("i", N) is not index("i", M)
    assert make("f", (N,), "int") is not make("f", (N,), "real")


@pytest.mark.parametrize(
    ("value", "same"), [(2.0, number(2)), (True, TRUE), (False, FALSE), (0.0, ZERO), (1, ONE), (1e6, number(10**6))]
)
def test_integral_numbers_are_integers_and_truth_values_are_not(value, same):
    assert number(value) is same


@pytest.mark.parametrize("value", [0.5, float("inf"), -1e-30])
def test_other_numbers_are_real(value):
    assert (number(value).sort, number(value).as_number) == ("real", value)
    assert number(1).as_number is not True


def test_the_order_depends_on_the_structure_alone():
    first, second = sorted((M, N), key=lambda atom: atom.order)
    assert ex.add(N, M) is ex.add(M, N)
    assert ex.multiply(second, first).args[0][0] == (first, second)
    assert SUM.order > max(N.order, M.order)


@pytest.mark.parametrize("expr", [ZERO, number(-4), N, SUM, ex.multiply(N, M), ex.add(ex.multiply(N, N), number(1))])
def test_polynomials_return_the_expression(expr):
    assert from_polynomial(polynomial(expr)) is expr


def test_products_and_sums_of_polynomials():
    difference = total(polynomial(N), product({(): -1}, polynomial(M)))
    square = product(difference, difference)
    assert from_polynomial(square) is ex.add(
        ex.multiply(N, N), ex.multiply(number(-2), ex.multiply(N, M)), ex.multiply(M, M)
    )
    assert from_polynomial(total(difference, polynomial(M), product({(): -1}, polynomial(N)))) is ZERO


CONDITION = ex.less(N, read("x", (index("i", M),), "real"))
ROOT = ex.choose(CONDITION, SUM, N)


def test_walks_yield_each_expression_once_and_operands_first():
    found = list(walk(ROOT, SUM))
    assert len(found) == len(set(found))
    assert all(found.index(part) < found.index(expr) for expr in found for part in expr.operands)
    assert SUM not in list(walk(ROOT, known={SUM}))


def test_walks_outside_of_an_operator_do_not_enter_it():
    inside = index("i", M)
    assert inside in list(walk_outside((), ROOT))
    assert inside not in list(walk_outside({"read"}, ROOT))


def test_searches():
    assert contains([ROOT], index("i", M))
    assert contains([ZERO, ROOT], ZERO, CONDITION)
    assert not contains([SUM], index("i", M), number(7))
    assert uses([ZERO, ROOT], "sum", "power")
    assert not uses([SUM], "choose", "an operator that does not exist")
