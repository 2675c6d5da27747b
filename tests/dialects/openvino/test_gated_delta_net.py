"""The Loop of the gated delta rule computes the rule, and OpenVINO's CPU plugin runs it as one operator."""

import numpy
import openvino
import pytest
from openvino import opset13
from support.decode import compiled, executed

from graphpass.dialects.openvino.gated_delta_net import GatedDeltaNet

BATCH, TOKENS, HEADS, KEYS, VALUES = 2, 5, 3, 8, 8


def expected(query, key, value, gate, beta, state):
    results = []
    for token in range(TOKENS):
        decay = numpy.exp(gate[:, :, token])
        state = state * (decay[..., None] if decay.ndim == 3 else decay[..., None, None])
        recalled = numpy.einsum("bhk,bhkv->bhv", key[:, :, token], state)
        corrected = beta[:, :, token, None] * (value[:, :, token] - recalled)
        state = state + numpy.einsum("bhk,bhv->bhkv", key[:, :, token], corrected)
        results.append(numpy.einsum("bhk,bhkv->bhv", query[:, :, token] / KEYS**0.5, state))
    return numpy.stack(results, 2), state


@pytest.mark.parametrize("by_row", [False, True])
def test_the_loop_computes_the_rule(by_row):
    rows = [(KEYS,), (KEYS,), (VALUES,), (KEYS,) if by_row else (), ()]
    inputs = [opset13.parameter([-1, HEADS, -1, *row], numpy.float32) for row in rows]
    inputs.append(opset13.parameter([-1, HEADS, KEYS, VALUES], numpy.float32))
    size = opset13.convert(opset13.gather(opset13.shape_of(inputs[0]), *map(opset13.constant, (3, 0))), "f32")
    scaled = opset13.divide(inputs[0], opset13.power(size, opset13.constant(numpy.float32(0.5))))
    operands = [port.output(0) for port in (scaled, *inputs[1:])]
    model = compiled(openvino.Model(list(GatedDeltaNet(*operands).write("net")), inputs, "delta"))
    random = numpy.random.default_rng(0)
    feeds = [random.standard_normal((BATCH, HEADS, TOKENS, *row), numpy.float32) for row in rows]
    feeds[3] = -numpy.abs(feeds[3])
    feeds.append(random.standard_normal((BATCH, HEADS, KEYS, VALUES), numpy.float32))
    found = model(feeds)
    for actual, wanted in zip((found[0], found[1]), expected(*feeds), strict=True):
        numpy.testing.assert_allclose(actual, wanted, rtol=1e-3, atol=1e-3)
    assert executed(model)["GatedDeltaNet"] == (not by_row)
