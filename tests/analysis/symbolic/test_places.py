"""Indices between shapes: broadcast, flattened, reshaped, scattered."""

import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, number
from graphpass.analysis.symbolic.places import (
    broadcast_index,
    digits,
    flat_place,
    index_along,
    index_of,
    regroup,
    solved,
)

BATCH, LENGTH, FREE = ex.length("batch", 1), ex.length("length", 1), ex.length("free", 1)
B, Q = ex.index("b", BATCH), ex.index("q", LENGTH)
TWO, FOUR, SIXTEEN = number(2), number(4), number(16)
HEAD, CHANNEL = ex.index("head", FOUR), ex.index("channel", SIXTEEN)
FLAT = ex.add(ex.multiply(SIXTEEN, HEAD), CHANNEL)


def test_indices_along_axes_of_size_1_are_0():
    assert index_along("i", ONE) is ZERO
    assert index_along("i", LENGTH) is ex.index("i", LENGTH)
    assert broadcast_index((B, Q), (ONE, FREE)) == (ZERO, Q)


def test_flat_indices_are_inverted():
    sizes = (BATCH, LENGTH, FOUR, SIXTEEN)
    index = (B, Q, HEAD, CHANNEL)
    assert index_of(flat_place(index, sizes), sizes) == index
    with pytest.raises(UnknownError, match="no proven quotient"):
        index_of(Q, (BATCH, FREE))


@pytest.mark.parametrize(
    ("index", "sizes", "targets", "result"),
    [
        ((B, Q, HEAD, CHANNEL), (BATCH, LENGTH, FOUR, SIXTEEN), (BATCH, LENGTH, number(64)), (B, Q, FLAT)),
        ((B, Q, CHANNEL), (BATCH, LENGTH, SIXTEEN), (BATCH, ONE, LENGTH, SIXTEEN), (B, ZERO, Q, CHANNEL)),
        ((ZERO, B, ZERO), (ONE, BATCH, ONE), (BATCH,), (B,)),
        (
            (B, CHANNEL),
            (BATCH, SIXTEEN),
            (BATCH, FOUR, FOUR),
            (B, ex.floor_divide(CHANNEL, FOUR), ex.modulo(CHANNEL, FOUR)),
        ),
    ],
)
def test_reshapes_keep_equal_axes(index, sizes, targets, result):
    assert regroup(index, sizes, targets) == result


@pytest.mark.parametrize(
    ("place", "size", "parts"),
    [
        (FLAT, SIXTEEN, (HEAD, CHANNEL)),
        (
            ex.add(ex.multiply(SIXTEEN, Q), FREE),
            SIXTEEN,
            (ex.add(Q, ex.floor_divide(FREE, SIXTEEN)), ex.modulo(FREE, SIXTEEN)),
        ),
        (FLAT, number(32), (ex.floor_divide(HEAD, TWO), ex.add(ex.multiply(SIXTEEN, ex.modulo(HEAD, TWO)), CHANNEL))),
        (Q, FREE, (ex.floor_divide(Q, FREE), ex.modulo(Q, FREE))),
    ],
)
def test_quotients_are_as_exact_as_proven(place, size, parts):
    assert digits(place, size) == parts


FIRST, SECOND = ex.index("i", LENGTH), ex.index("j", number(8))
WANTED = ex.index("row", LENGTH), ex.index("column", number(20))


def test_indices_of_a_scatter_are_solved():
    solution, condition = solved([FIRST, SECOND], (FIRST, ex.add(ex.multiply(TWO, SECOND), ONE)), WANTED)
    shifted = ex.subtract(WANTED[1], ONE)
    assert solution == {FIRST: WANTED[0], SECOND: ex.floor_divide(shifted, TWO)}
    at = {WANTED[0]: ZERO}
    written = [ex.substitute(condition, at | {WANTED[1]: number(column)}) for column in (0, 1, 2, 15, 16, 17)]
    assert [expr is ex.TRUE for expr in written] == [False, True, False, True, False, False]


@pytest.mark.parametrize(
    ("spread", "places", "words"),
    [
        ([FIRST], (ex.negative(FIRST), ZERO), "indices that are computed"),
        ([FIRST, SECOND], (ex.add(FIRST, SECOND), ZERO), "indices that are computed"),
        ([FIRST], (ex.multiply(FIRST, FIRST), ZERO), "indices that are computed"),
        ([FIRST], (ZERO, ZERO), "several times"),
    ],
)
def test_other_scatters_are_unknown(spread, places, words):
    with pytest.raises(UnknownError, match=words):
        solved(spread, places, WANTED)
