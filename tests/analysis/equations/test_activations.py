"""Positions that a graph counts itself, apart from masks."""

import pytest

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.equations.activations import position_counters
from graphpass.testing import parse_model

MODEL = """
%input_ids = Parameter : i64[batch, length]
%past_key_values.0.key = Parameter : f32[batch, 2, past, 4]
%sizes = ShapeOf(%past_key_values.0.key) : i64[4]
%slots = Gather(%sizes, 2) {{axis=0}} : i64[]
%new = ShapeOf(%input_ids) : i64[2]
%length = Gather(%new, 1) {{axis=0}} : i64[]
%counted = Range(0, %length, 1)
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


@pytest.mark.parametrize(
    ("counted", "found"),
    [
        ("%positions = Add(%counted, %slots)", ["counted", "positions"]),
        ("%end = Add(%slots, %length)\n%positions = Range(%slots, %end, 1)", ["positions"]),
        ("%many = Range(0, %slots, 1)\n%positions = Slice(%many, [0], [1]) {axes=[0]}", []),
        ("%all = Broadcast(3, %new)\n%is_later = Greater(%slots, 0)\n%positions = Select(%is_later, %all, 1)", []),
        ("%positions = Add(%counted, 2)", ["counted"]),
    ],
    ids=["moved", "range", "size", "condition", "in each step"],
)
def test_operators_that_count(counted, found):
    model = parse_model(MODEL.format(counted=counted), "openvino")
    assert [node.name for node in position_counters(model, analyze_caches(model))] == found
