"""Quantization of activations and of ports."""

import pytest

from graphpass.ir.quantizers import quantized_ports, rounds_activations
from graphpass.testing import parse_model

MODEL = """
%x = Parameter : f32[n, 4]
%past = Parameter : f32[p, 4]
%slots = Slice(%past, [0], [8]) {{axes=[0]}}
%small = QuantizeLinear({quantized}, 0.5, 0:u8)
%kept = Reshape(%small, [-1, 4])
%wide = DequantizeLinear(%kept, 0.5, 0:u8)
%row = Transpose(%wide) {{order=[1, 0]}}
%y = {last}(%row)
Result(%y) {{name=y}}
"""


@pytest.mark.parametrize(
    ("quantized", "last", "found"),
    [("%slots", "Tanh", ["QuantizeLinear"]), ("%x", "Identity", ["QuantizeLinear", "DequantizeLinear"])],
)
def test_quantizers_beside_ports_are_found(quantized, last, found):
    model = parse_model(MODEL.format(quantized=quantized, last=last))
    graph = model.graph
    assert rounds_activations(model)
    assert [node.op for node, _ in quantized_ports(graph)] == found
    assert all(use.node.op in {"QuantizeLinear", "Transpose"} for _, uses in quantized_ports(graph) for use in uses)


def test_weights_are_not_activations():
    text = """
%w = Constant : u8[4, 4]
%wide = DequantizeLinear(%w, 0.5, 0:u8)
Result(%wide) {name=y}"""
    model = parse_model(text)
    assert not rounds_activations(model)
    assert list(quantized_ports(model.graph)) == []
