"""Positions of selected elements: those of the largest do not depend on what keeps the order of elements."""

from graphpass.analysis.symbolic import expressions as ex
from graphpass.verify.structure.algebra import Algebra
from graphpass.verify.structure.angles import AngleTables
from graphpass.verify.structure.definitions import Definitions
from graphpass.verify.structure.masks import KnownMasks
from graphpass.verify.structure.selected_places import TruePlaces, is_rank, ranked, ranked_place, without_ranks

EXPERT = ex.index("expert", ex.number(8))
RANK = ex.index("rank", ex.number(2))
SCORE = ex.read("score", (EXPERT,), "real")
ALGEBRA = Algebra(AngleTables(frozenset()), 1000, [])


def top():
    """Return the index of the expert of rank ``RANK``."""
    place = Definitions(ALGEBRA, KnownMasks()).top(SCORE, EXPERT, (True,))
    return ex.read(place.args[0], (*place.args[1:], RANK), "int")


def test_positive_factors_and_offsets_keep_the_order():
    row = ex.read("bias", (ex.index("row", ex.number(3)),), "real")
    assert ranked(ALGEBRA.times(ex.number(0.5), SCORE), EXPERT) is SCORE
    assert ranked(ex.apply("exp", [ALGEBRA.normal(ex.add(SCORE, row))]), EXPERT) is SCORE
    negative = ALGEBRA.times(ex.number(-1.0), SCORE)
    assert ranked(negative, EXPERT) is negative


def test_bodies_read_elements_by_position_instead_of_rank():
    place = top()
    assert is_rank(place, RANK)
    assert not is_rank(place, EXPERT)
    weight = ex.read("weight", (place,), "real")
    (position, size) = ranked_place([weight], RANK)
    assert position is place
    assert size.as_number == 8
    (body,), arguments = without_ranks([weight], [])
    ((chosen, was),) = arguments.items()
    assert was is place
    assert body is ex.read("weight", (chosen,), "real")
    assert without_ranks([weight], [RANK]) == ([weight], {})


def test_one_element_at_most_is_selected_by_an_equation_of_its_rank():
    equation = ex.equal(top(), EXPERT)
    own = (EXPERT, RANK)
    assert TruePlaces(equation, own, ex.number(2)).is_single(0)
    assert not TruePlaces(ex.at_most(top(), EXPERT), own, ex.number(2)).is_single(0)


def test_the_position_of_an_element_that_a_sum_binds_remains():
    place = top()
    row = ex.index("row", ex.number(3))
    own = ex.read(place.args[0], (row, *place.args[1:]), "int")
    weight = ex.read("weight", (row, own), "real")
    assert without_ranks([weight], [row]) == ([weight], {})
