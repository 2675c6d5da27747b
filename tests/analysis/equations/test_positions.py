"""Tensors of counted positions are found by their elements, however a model computes them."""

import pytest

from graphpass.analysis.equations.positions import find_position_rows
from graphpass.testing import parse_model

MODEL = """
%input_ids = Parameter : i64[batch, length]
%attention_mask = Parameter : i64[batch, total]
%past_key_values.0.key = Parameter : f32[batch, 2, past, 4]
%sizes = ShapeOf(%past_key_values.0.key) : i64[4]
%slots = Gather(%sizes, 2) {{axis=0}} : i64[]
%new = ShapeOf(%input_ids) : i64[2]
%length = Gather(%new, 1) {{axis=0}} : i64[]
%end = Add(%slots, %length)
%summed = CumSum(%attention_mask, 1)
%before = Subtract(%summed, 1)
%from = Unsqueeze(%slots, [0])
%is_token = Equal(%attention_mask, 1)
{counted}
%words = Constant : f32[9, 8]
%table = Constant : f32[40, 8]
%embedded = Gather(%words, %input_ids) {{axis=0}}
%placed = Gather(%table, %positions) {{axis=0}}
%hidden = Add(%embedded, %placed)
%heads = Reshape(%hidden, [0, 0, 2, 4])
%key = Transpose(%heads) {{order=[0, 2, 1, 3]}}
%present = Concat(%past_key_values.0.key, %key) {{axis=2}}
%scores = MatMul(%key, %present) {{transpose_b=true}}
%weights = Softmax(%scores) {{axis=3}}
%logits = MatMul(%weights, %present)
Result(%logits) {{name=logits}}
Result(%present) {{name=present.0.key}}
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
        f"%filled = Select(%is_token, %before, 1)\n%positions = Slice(%filled, {LAST})",
        f"%kept = Multiply(%before, %attention_mask)\n%positions = Slice(%kept, {LAST})",
    ],
)
def test_slots_and_sums_of_the_mask_are_positions(counted):
    rows = parse_model(MODEL.format(counted=counted), "openvino").analysis(find_position_rows)
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
    rows = parse_model(MODEL.format(counted=counted), "openvino").analysis(find_position_rows)
    assert "positions" not in {row.value.name for row in rows}
