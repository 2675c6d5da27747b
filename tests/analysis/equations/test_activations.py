"""Positions that a graph counts itself, apart from masks."""

import pytest
from support.counting import counting_model

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.equations.activations import position_counters


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
    model = counting_model("%counted = Range(0, %length, 1)", counted)
    assert [node.name for node in position_counters(model, analyze_caches(model))] == found
