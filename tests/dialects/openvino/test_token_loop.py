"""Loops over tokens: operands are read token by token, results are written, and the state is carried."""

import numpy
import openvino
from openvino import opset13

from graphpass.dialects.openvino.token_loop import loop_over_tokens


class Sum:
    """Adds each token to the state, and writes the state."""

    def __init__(self):
        index = opset13.parameter(openvino.PartialShape([]), openvino.Type.i32)
        token = opset13.parameter(openvino.PartialShape([-1, 1, 4]), openvino.Type.f32)
        self.tokens = (token,)
        self.state = opset13.parameter(openvino.PartialShape([-1, 1, 4]), openvino.Type.f32)
        self.results = opset13.parameter(openvino.PartialShape([-1, -1, 4]), openvino.Type.f32)
        total = opset13.add(self.state, token)
        at = opset13.unsqueeze(index, opset13.constant(0))
        filled = opset13.scatter_update(self.results, at, total, opset13.constant(1))
        goes_on = opset13.result(opset13.constant([True], dtype=openvino.Type.boolean))
        self.new_state, self.new_results = opset13.result(total), opset13.result(filled)
        self.model = openvino.Model(
            [goes_on, self.new_state, self.new_results], [index, token, self.state, self.results], "token"
        )


def test_each_token_updates_the_state():
    x = opset13.parameter(openvino.PartialShape([-1, -1, 4]), openvino.Type.f32)
    start = opset13.parameter(openvino.PartialShape([-1, 1, 4]), openvino.Type.f32)
    sizes = opset13.shape_of(x, "i64")
    zeros = opset13.broadcast(opset13.constant(numpy.float32(0)), sizes)
    count = opset13.convert(opset13.gather(sizes, opset13.constant(1), opset13.constant(0)), "i32")
    results, state = loop_over_tokens("sum", count, Sum(), [x.output(0)], start.output(0), zeros.output(0), 1)
    assert results.get_node().get_friendly_name() == "sum"
    model = openvino.compile_model(openvino.Model([results, state], [x, start], "summing"), "CPU")
    random = numpy.random.default_rng(0)
    for tokens in (1, 3, 5):
        feeds = random.standard_normal((2, tokens, 4), numpy.float32), random.standard_normal((2, 1, 4), numpy.float32)
        found = model(feeds)
        expected = feeds[1] + feeds[0].cumsum(1)
        numpy.testing.assert_allclose(found[0], expected, atol=1e-5)
        numpy.testing.assert_allclose(found[1], expected[:, -1:], atol=1e-5)
