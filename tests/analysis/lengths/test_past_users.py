"""Find what depends on the number of past positions."""

import numpy
import openvino
from openvino import opset13 as ops

from graphpass.analysis.lengths.past_users import reached
from graphpass.dialects.openvino.model import OpenVINOModel


def test_a_size_that_the_model_fixes_is_no_length():
    """The batch of positions that the mask counts is 1, whatever their number."""
    mask = ops.parameter([-1, -1], numpy.int64, "attention_mask")
    zero, one = ops.constant(0), ops.constant(1)
    total = ops.gather(ops.shape_of(mask), one, zero)
    row = ops.unsqueeze(ops.range(zero, total, one, "i64"), zero)
    batch, length = (ops.gather(ops.shape_of(row), axis, zero) for axis in (zero, one))
    for node, name in ((mask, "attention_mask"), (batch, "batch"), (length, "length")):
        node.set_friendly_name(name)
    graph = OpenVINOModel(openvino.Model([ops.result(batch), ops.result(length)], [mask])).graph
    found = {graph.nodes[index].name for index in reached(graph, {graph.parameters["attention_mask"].node}, set())}
    assert "length" in found
    assert "batch" not in found
