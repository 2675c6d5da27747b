"""Weights of 4 bits: ONNX Runtime's quantizer, and the products whose weights can be quantized."""

import numpy
import pytest

from graphpass.dialects.onnx.four_bits import FourBits, four_bit_product
from graphpass.testing import parse_model


@pytest.mark.parametrize("inputs", [32, 40, 96])
def test_quantized_weights_are_near_the_weights(inputs):
    weight = numpy.random.default_rng(0).standard_normal([inputs, 6]).astype(numpy.float32)
    quantized = FourBits.of(weight)
    blocks = -(-inputs // 32)
    assert (quantized.packed.shape, quantized.scales.shape) == ((6, blocks, 16), (6, blocks))
    assert quantized.zeros.shape == (6, (blocks + 1) // 2)
    wide = quantized.widened()
    assert wide.shape == weight.shape
    steps = numpy.repeat(numpy.abs(quantized.scales).T, 32, axis=0)[:inputs]
    assert (numpy.abs(wide - weight) <= 0.51 * steps).all()


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("%w = Constant : f32[8, 6]", (8, 6)),
        ("%v = Constant : f32[6, 8]\n%w = Transpose(%v) {order=[1, 0]}", (8, 6)),
        ("%v = Constant : f16[8, 6]\n%w = Convert(%v) {to=f32}", (8, 6)),
        ("%w = Parameter : f32[8, 6]", None),
        ("%v = Constant : i32[8, 6]\n%w = Convert(%v) {to=f32}", None),
        ("%w = Constant : f32[2, 8, 6]", None),
        ("%v = Constant : f32[8, 6]\n%w = Tanh(%v)", None),
    ],
)
def test_constant_matrices_can_be_quantized(text, sizes):
    graph = parse_model(f"%x = Parameter : f32[2, 3, 8]\n{text}\n%y = MatMul(%x, %w)\nResult(%y) {{name=y}}").graph
    found = four_bit_product(graph, graph.producer(graph.writes["y"].source()))
    assert (found and found.sizes) == sizes
    if found is not None:
        assert found.read(graph).shape == sizes
