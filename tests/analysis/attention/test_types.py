"""Scales of scores, masks of operators, and the attribute that makes them causal."""

import math

import pytest

from graphpass.analysis.attention.types import OPERATORS, Mask, Scale
from graphpass.testing import parse_model

GRAPH = parse_model("""%x = Parameter : f32[2]
%b = Parameter : boolean[2]
%half = Multiply(0.25, 2.0)
%y = Multiply(%x, %half)
%z = LogicalNot(%b)
Result(%y) {name=y}
Result(%z) {name=z}""").graph
HALF = next(node for node in GRAPH.of_op("Multiply") if node.name == "half").outputs[0]


@pytest.mark.parametrize(
    ("value", "divides", "factor"),
    [
        (0.5, False, 0.5),
        (4.0, True, 0.25),
        (HALF, False, 0.5),
        (HALF, True, 2.0),
        (0.0, False, None),
        (math.inf, True, None),
        (math.nan, False, None),
        (GRAPH.parameters["x"], False, None),
    ],
)
def test_factors_of_the_scores(value, divides, factor):
    assert Scale(value, divides).factor(GRAPH) == factor


def test_scales_are_named_by_tensor_or_number():
    assert [Scale(0.125, False).name, Scale(HALF, True).name] == ["0.125", "half"]


def test_real_masks_are_added_and_booleans_keep_scores():
    assert Mask.of_operator(GRAPH.parameters["x"]).keeps is None
    assert Mask.of_operator(GRAPH.parameters["b"]).keeps is True


@pytest.mark.parametrize(
    ("op", "attributes", "causal"),
    [
        ("Attention", "", False),
        ("Attention", "is_causal=1", True),
        ("com.microsoft.MultiHeadAttention", "num_heads=2, unidirectional=1", True),
        ("com.microsoft.MultiHeadAttention", "num_heads=2", False),
        ("com.microsoft.GroupQueryAttention", "num_heads=2, kv_num_heads=2", True),
        ("com.microsoft.GroupQueryAttention", "num_heads=2, kv_num_heads=2, causal=0", False),
    ],
)
def test_causality_by_the_attribute_or_by_default(op, attributes, causal):
    own = f" {{{attributes}}}" if attributes else ""
    text = f"%q = Parameter : f32[b, 2, n, 4]\n%y = {op}(%q, %q, %q){own} : f32[b, 2, n, 4]\nResult(%y) {{name=y}}"
    graph = parse_model(text, opset=23).graph
    node = graph.producer(graph.writes["y"].source())
    assert OPERATORS[node.op].hides_later(node) == causal
