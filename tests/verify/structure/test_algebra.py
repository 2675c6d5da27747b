"""Canonical forms of real expressions keep the meaning, and equal functions have one form."""

from __future__ import annotations

import math

import numpy
import pytest
from hypothesis import given, settings, strategies as st

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.constants import Table
from graphpass.analysis.symbolic.evaluate import value_at
from graphpass.analysis.symbolic.expressions import ONE, number
from graphpass.verify.structure.algebra import LARGEST, Algebra, TooLargeError, reads_table
from graphpass.verify.structure.angles import AngleTables

X, Y = ex.read("x", (), "real"), ex.read("y", (), "real")
ROW = ex.index("row", number(4))
ROOT_OF_Y = ex.apply("sqrt", (Y,))
EXP = ex.apply("exp", (X,))


def algebra(limit: int = 10_000, neutral: tuple[str, ...] = ()) -> Algebra:
    return Algebra(AngleTables(), limit, neutral)


def value_of(expr: ex.Expr, values: dict[ex.Expr, float]) -> float:
    """Evaluate an expression, also with the operators of canonical forms."""
    known = dict(values)
    for part in ex.walk(expr):
        if part.op == "times":
            known[part] = math.prod(known[factor] for factor in part.args)
        elif part.op == "raise":
            known[part] = known[part.args[0]] ** part.args[1]
        elif part not in known:
            known[part] = float(value_at(part, known, None))
    return known[expr]


@st.composite
def expressions(draw):
    """Draw an expression of positive numbers and an index."""
    positive = [X, Y, number(2), number(0.3), ex.add(ROW, ONE)]
    for _ in range(draw(st.integers(1, 9))):
        left, right = draw(st.sampled_from(positive)), draw(st.sampled_from(positive))
        build = draw(
            st.sampled_from(
                [
                    ex.add,
                    ex.multiply,
                    ex.divide,
                    lambda one, _: ex.apply("sqrt", (one,)),
                    lambda one, _: ex.apply("power", (one, number(-0.5))),
                    lambda one, other: ex.choose(ex.less(ROW, number(2)), one, other),
                    ex.maximum,
                ]
            )
        )
        positive.append(build(left, right))
    return ex.subtract(positive[-1], ex.multiply(number(0.7), draw(st.sampled_from(positive))))


@settings(max_examples=60)
@given(expressions(), st.integers(0, 3), st.floats(0.25, 4), st.floats(0.25, 4), st.booleans())
def test_canonical_forms_keep_the_meaning(expr, row, x, y, is_by_cases):
    values = {X: x, Y: y, ROW: row}
    forms = algebra()
    meant, found = value_of(expr, values), value_of((forms.cases if is_by_cases else forms.normal)(expr), values)
    assert math.isclose(meant, found, rel_tol=1e-4, abs_tol=1e-4)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ex.divide(X, ROOT_OF_Y), ex.multiply(X, ex.apply("power", (Y, number(-0.5))))),
        (ex.divide(X, ROOT_OF_Y), ex.multiply(ex.negative(X), ex.divide(number(-1), ROOT_OF_Y))),
        (ex.multiply(number(2), ex.add(X, Y)), ex.add(ex.multiply(Y, number(2)), X, X)),
        (ex.subtract(ex.add(X, Y), X), Y),
        (ex.multiply(X, number(0.1)), ex.multiply(X, number(float(numpy.float32(0.1))))),
        (ex.divide(EXP, EXP), ONE),
        (ex.choose(ex.at_most(X, number(-LARGEST)), number(-LARGEST), X), X),
        (ex.choose(ex.at_most(X, Y), Y, X), ex.maximum(Y, X)),
    ],
)
def test_equal_functions_have_one_form(one, other):
    forms = algebra()
    assert forms.normal(one) is forms.normal(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ex.divide(X, X), ONE),
        (ex.multiply(ex.apply("sqrt", (X,)), ex.apply("sqrt", (X,))), X),
        (ex.apply("sqrt", (ex.multiply(X, X),)), X),
        (ex.multiply(X, number(0.1)), ex.multiply(X, number(0.10001))),
        (ex.choose(ex.at_most(X, Y), X, Y), ex.maximum(X, Y)),
    ],
    ids=["share of itself", "square of a root", "root of a square", "constants 1e-4 apart", "minimum"],
)
def test_functions_that_differ_somewhere_have_two_forms(one, other):
    forms = algebra()
    assert forms.normal(one) is not forms.normal(other)


def test_large_powers_of_roots_are_not_multiplied_out():
    forms = algebra()
    large = forms.power(forms.power(X, 0.5), 1e9)
    assert (large.op, large.args[1]) == ("raise", 1e9)
    assert forms.power(forms.power(X, 0.5), 4.0).op == "times"


def test_conditions_on_indices_are_outermost():
    forms, is_first = algebra(), ex.less(ROW, number(2))
    crossed = ex.multiply(ex.choose(is_first, X, Y), ex.choose(is_first, Y, X))
    assert forms.cases(crossed) is forms.normal(ex.multiply(X, Y))
    found = forms.cases(ex.add(X, ex.choose(is_first, X, Y)))
    assert (found.op, found.args[0]) == ("choose", is_first)
    assert forms.cases(found, apart=lambda condition: condition is not is_first) is found


def test_a_table_is_a_multiple_of_the_first_proportional_one():
    elements = numpy.arange(1, 9, dtype=numpy.float32)
    first, double, other = (
        ex.read(Table(name, array), (ex.index("column", number(8)),), "real")
        for name, array in [("first", elements), ("double", 2 * elements), ("other", elements[::-1].copy())]
    )
    forms = algebra()
    assert reads_table(first)
    assert forms.normal(double) is forms.normal(ex.multiply(number(2), first))
    assert forms.normal(other) is other


def test_rounding_is_neutral_except_on_positions():
    forms, rounded = algebra(neutral=("round_f16",)), ex.apply("round_f16", (X,))
    assert forms.normal(rounded) is X
    assert algebra().normal(rounded) is rounded
    position = ex.apply("round_f16", (ROW,))
    assert forms.normal(position) is position


def test_long_sums_are_defined_once_where_they_are_factors():
    forms, defined = algebra(), []
    forms.define = lambda long: defined.append(long) or X
    terms = [ex.read(f"term {place}", (), "real") for place in range(9)]
    short = forms.normal(ex.divide(Y, ex.add(*terms[:8])))
    assert any(part.op == "raise" and part.args[0].op == "real_sum" for part in ex.walk(short))
    assert defined == []
    assert forms.normal(ex.divide(Y, ex.add(*terms))) is forms.normal(ex.divide(Y, X))
    assert len(defined) == 1


def test_powers_of_long_sums_are_those_of_their_definition():
    """The square of a definition is its product with itself, and a multiple of a definition is one of the power."""
    forms = algebra()
    forms.define = lambda _: ex.make("times", (number(2.0), X), "real")
    long = ex.add(*(ex.read(f"term {place}", (), "real") for place in range(9)))
    square = forms.normal(ex.multiply(number(4), ex.multiply(X, X)))
    assert forms.normal(ex.multiply(long, long)) is forms.power(forms.normal(long), 2.0) is square
    assert forms.normal(ex.divide(Y, long)) is forms.normal(ex.divide(ex.multiply(number(0.5), Y), X))
    assert forms.power(forms.normal(long), 0.5) is forms.times(number(2**0.5), forms.power(X, 0.5))


def test_roots_of_negative_multiples_of_a_definition_stay_whole():
    forms = algebra()
    negative = ex.make("times", (number(-2.0), X), "real")
    forms.define = lambda _: negative
    long = forms.normal(ex.add(*(ex.read(f"term {place}", (), "real") for place in range(9))))
    assert forms.power(long, 0.5) is ex.make("raise", (negative, 0.5), "real")


def test_the_number_of_rewritten_expressions_is_limited():
    long = ex.add(*(ex.read(f"term {place}", (), "real") for place in range(20)))
    assert algebra(30).normal(long) is long
    with pytest.raises(TooLargeError):
        algebra(10).normal(long)


def test_parts_of_tables_do_not_depend_on_the_order_of_conditions():
    """Sections of M-RoPE: the part for places 2 to 4 is bounded by two conditions."""
    place, table = ex.index("place", number(8)), Table("random", numpy.random.default_rng(3).standard_normal(8))
    low, high = ex.less(place, number(2)), ex.less(place, number(5))
    element = ex.read(table, (place,), "real")
    value = ex.choose(low, X, ex.choose(high, ex.multiply(element, Y), ex.multiply(element, X)))
    for conditions in ([low, high], [high, low]):
        forms = algebra()
        parts = ex.walk(forms._cases(forms.normal(value), conditions))
        found = {part.args[0].elements.shape for part in parts if part.op == "read" and reads_table(part)}
        assert found == {(3,)}, conditions
