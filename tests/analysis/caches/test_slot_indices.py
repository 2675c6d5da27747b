"""Indices of cache slots in the form that NPUW recognizes."""

import pytest

from graphpass.analysis.caches.slot_indices import are_known_slots
from graphpass.testing import parse_model

MODEL = """%shape = Parameter : i64[4]
%n = Parameter : i64[]
%past = {past}
%end = Add({first}, {second})
%q = Range({start}, %end, 1)
%other = Gather(%shape, 1) {{axis=0}}
%longer = Add(%other, %n)
%k = Range({from_}, {to}, 1)
%q1 = Unsqueeze(%q, 0)
%q2 = Unsqueeze(%q1, 0)
%queries = Unsqueeze(%q2, 3)
%k1 = Unsqueeze(%k, 0)
%k2 = Unsqueeze(%k1, 0)
%k3 = Unsqueeze(%k2, 0)
%keys = Convert(%k3) {{to=f32}}
Result(%queries) {{name=q}}
Result(%keys) {{name=k}}"""
GATHER = "Gather(%shape, 2) {axis=0}"
FORM = {"past": GATHER, "first": "%past", "second": "%n", "start": "%past", "from_": "0", "to": "%end"}


@pytest.mark.parametrize(
    ("changed", "known"),
    [
        ({}, True),
        ({"first": "%n", "second": "%past"}, True),
        ({"start": "0"}, False),
        ({"past": "Multiply(%n, 2)"}, False),
        ({"from_": "%n"}, False),
        ({"first": "%n"}, False),
        ({"to": "%longer"}, False),
    ],
)
def test_queries_count_from_the_past_and_keys_from_a_constant(changed, known):
    graph = parse_model(MODEL.format(**FORM | changed), "openvino").graph
    assert are_known_slots(graph, graph.writes["k"].source(), graph.writes["q"].source()) == known
