"""The Loop of Mamba-2 computes the recurrence."""

import numpy
import openvino
import pytest
from openvino import opset13
from support.decode import compiled

from graphpass.dialects.openvino.selective_ssm import SelectiveSSM

BATCH, HEADS, KEYS, VALUES = 2, 3, 4, 8


def expected(rate, step, key, value, query, state):
    results = []
    for token in range(step.shape[1]):
        decay = numpy.exp(rate * step[:, token])[..., None, None]
        added = step[:, token, :, None, None] * value[:, token, :, :, None] * key[:, token, :, None, :]
        state = state * decay + added
        results.append((state * query[:, token, :, None, :]).sum(-1))
    return numpy.stack(results, 1), state


@pytest.mark.parametrize("tokens", [1, 4])
def test_the_loop_computes_the_recurrence(tokens):
    rows = [(), (KEYS,), (VALUES,), (KEYS,)]
    inputs = [opset13.parameter([HEADS], numpy.float32)]
    inputs += [opset13.parameter([-1, -1, HEADS, *row], numpy.float32) for row in rows]
    inputs.append(opset13.parameter([-1, HEADS, VALUES, KEYS], numpy.float32))
    written = SelectiveSSM(*(port.output(0) for port in inputs)).write("ssm")
    model = compiled(openvino.Model(list(written), inputs, "ssm"))
    random = numpy.random.default_rng(0)
    feeds = [-random.uniform(0.1, 1, HEADS).astype("f4")]
    feeds += [random.uniform(0.1, 1, (BATCH, tokens, HEADS, *row)).astype("f4") for row in rows]
    feeds.append(random.standard_normal((BATCH, HEADS, VALUES, KEYS), numpy.float32))
    found = model(feeds)
    for actual, wanted in zip((found[0], found[1]), expected(*feeds), strict=True):
        numpy.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)
