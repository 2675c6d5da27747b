"""Inputs that count the positions before a step."""

import pytest

from graphpass.analysis.caches.counters import counter_candidates, find_counters
from graphpass.analysis.caches.masks import find_elements
from graphpass.testing import parse_model

TEXT = """%input_ids = Parameter : i64[b, n]
%count = Parameter : i64{shape}
%sizes = ShapeOf(%input_ids)
%n = Gather(%sizes, {index}) {{axis=0}}
{after}
Result(%after) {{name=after}}"""


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
@pytest.mark.parametrize(
    ("shape", "index", "after", "counts"),
    [
        ("[]", "1", "%after = Add(%count, %n)", True),
        ("[1]", "[1]", "%after = Add(%n, %count)", True),
        ("[]", "1", "%one = Add(%count, 1)\n%less = Subtract(%n, 1)\n%after = Add(%one, %less)", True),
        ("[]", "0", "%after = Add(%count, %n)", False),
        ("[]", "1", "%after = Subtract(%count, %n)", False),
        ("[2]", "[1]", "%after = Add(%count, %n)", False),
    ],
)
def test_counters(dialect, shape, index, after, counts):
    model = parse_model(TEXT.format(shape=shape, index=index, after=after), dialect)
    found = find_counters(model.analysis(find_elements))
    assert {name: [node.name for node in results] for name, results in found.items()} == (
        {"count": ["after"]} if counts else {}
    )
    assert bool(counter_candidates(model.graph)) == (shape != "[2]")
