"""Constants are blocks of the other model's constants, or none."""

from __future__ import annotations

import numpy
import pytest
from verify.structure.composed_constants import FIRST, RANDOM, SECOND, element, holding, name_and_place

STACKED = numpy.stack([FIRST, SECOND])
INTERLEAVED = numpy.stack([FIRST, SECOND], axis=1).reshape(192, 64)


@pytest.mark.parametrize(
    ("made", "index", "expected"),
    [
        (STACKED, (1, 5, 6), ("second", 5, 6)),
        (STACKED.transpose(0, 2, 1).copy(), (1, 6, 5), ("second", 5, 6)),
        (numpy.concatenate([SECOND, FIRST]), (95, 0), ("second", 95, 0)),
        (numpy.concatenate([SECOND, FIRST]), (96, 0), ("first", 0, 0)),
        (numpy.concatenate([FIRST, SECOND], axis=1), (7, 64), ("second", 7, 0)),
        (FIRST[10:90].copy(), (0, 3), ("first", 10, 3)),
        (INTERLEAVED, (8, 3), ("first", 4, 3)),
        (INTERLEAVED, (9, 3), ("second", 4, 3)),
        (FIRST.astype(numpy.float16).astype(numpy.float32), (0, 0), ("made", 0, 0)),
    ],
)
def test_elements_of_new_constants_equal_the_reference(made, index, expected):
    assert name_and_place(element(made, index)) == expected


@pytest.mark.parametrize("place", [(0, 0, 0), (1, 95, 63), (0, 50, 20)])
def test_a_changed_element_prevents_a_block(place):
    made = STACKED.copy()
    made[place] *= numpy.float32(1.0001)
    assert name_and_place(element(made, place))[0] == "made"


@pytest.mark.parametrize("changed", [None, 0, 150, 299])
def test_rows_longer_than_their_hash_are_compared_in_full(changed):
    wide = RANDOM.standard_normal((16, 300), numpy.float32)
    made = numpy.concatenate([wide[8:], wide[:8]])
    if changed is not None:
        made[7, changed] += 1
    expected = ("wide", 13, 150) if changed is None else ("made", 5, 150)
    assert name_and_place(element(made, (5, 150), other=holding(wide=wide))) == expected
