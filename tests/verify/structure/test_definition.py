"""Positions and levels have a known range of values."""

from graphpass.analysis.symbolic.expressions import number
from graphpass.verify.structure.definition import Definition


def test_the_last_parameter_of_positions_and_levels_is_their_number():
    body, count = (number(0.0),), number(8)
    assert Definition("top", (True, count), body).values is count
    assert Definition("level", (count,), body).values is count
    assert Definition("sum", (count,), body).values is None


def test_definitions_are_equal_whether_or_not_they_may_be_undefined():
    assert Definition("sum", (), (number(1.0),), is_partial=True) == Definition("sum", (), (number(1.0),))
