"""Tensors of counted positions are found by their elements, however a model computes them."""

import pytest
from support.counting import counting_model

from graphpass.analysis.equations.positions import find_position_rows

#: Lengths and sums of the mask that rows of positions start from.
SETUP = """
%attention_mask = Parameter : i64[batch, total]
%end = Add(%slots, %length)
%summed = CumSum(%attention_mask, 1)
%before = Subtract(%summed, 1)
%from = Unsqueeze(%slots, [0])
%is_token = Equal(%attention_mask, 1)
"""


#: Operands of a Slice of the last columns, for the new tokens.
LAST = "%from, [9223372036854775807], [1], [1]"


@pytest.mark.parametrize(
    "counted",
    [
        "%all = Range(%slots, %end, 1)\n%positions = Unsqueeze(%all, [0])",
        "%all = Range(0, %length, 1)\n%moved = Add(%all, %slots)\n%positions = Unsqueeze(%moved, [0])",
        f"%all = Range(0, %end, 1)\n%row = Unsqueeze(%all, [0])\n%positions = Slice(%row, {LAST})",
        f"%positions = Slice(%before, {LAST})",
        f"%cut = Slice(%summed, {LAST})\n%positions = Subtract(%cut, 1)",
        f"%least = Maximum(%before, 0)\n%positions = Slice(%least, {LAST})",
        f"%some = Maximum(0, %before)\n%most = Minimum(9223372036854775807, %some)\n%positions = Slice(%most, {LAST})",
        f"%filled = Select(%is_token, %before, 1)\n%positions = Slice(%filled, {LAST})",
        f"%kept = Multiply(%before, %attention_mask)\n%positions = Slice(%kept, {LAST})",
    ],
)
def test_slots_and_sums_of_the_mask_are_positions(counted):
    rows = counting_model(SETUP, counted).analysis(find_position_rows)
    assert [(row.batch, row.length) for row in rows if row.value.name == "positions"] == [(0, 1)]


@pytest.mark.parametrize(
    "counted",
    [
        "%all = Range(0, %length, 1)\n%positions = Unsqueeze(%all, [0])",
        "%all = Range(%slots, %end, 1)\n%row = Unsqueeze(%all, [0])\n%positions = Add(%row, 2)",
        "%all = Range(%slots, %end, 1)\n%row = Unsqueeze(%all, [0])\n%positions = Minimum(%row, 30)",
        "%all = Range(%slots, %end, 1)\n%positions = Unsqueeze(%all, [1])",
        f"%positions = Slice(%summed, {LAST})",
        f"%least = Maximum(%before, 1)\n%positions = Slice(%least, {LAST})",
    ],
)
def test_other_numbers_are_not(counted):
    rows = counting_model(SETUP, counted).analysis(find_position_rows)
    assert "positions" not in {row.value.name for row in rows}
