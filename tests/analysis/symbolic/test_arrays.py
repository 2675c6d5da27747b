"""Writes at indices: elements by the table are those that numpy computes."""

from __future__ import annotations

import numpy
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphpass.analysis.symbolic import arrays
from graphpass.dialects.onnx.model import OnnxModel


def written(op, indices, updates, **attributes):
    """Return a write to ``[3, 9]`` by the table and by numpy."""
    data = numpy.arange(27, dtype=numpy.float32).reshape(3, 9)
    operands = {"data": data, "indices": numpy.array(indices), "updates": numpy.array(updates, numpy.float32)}
    graph = helper.make_graph(
        [helper.make_node(op, list(operands), ["y"], **attributes)],
        "write",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, [3, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 9])],
        [numpy_helper.from_array(operands[name], name) for name in ("indices", "updates")],
    )
    model = OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    (node,) = model.graph.of_op("ScatterElementsUpdate", "ScatterNDUpdate")
    known = dict(zip(node.inputs, operands.values(), strict=True))
    by_table = arrays._by_table(model.graph, node, node.outputs[0], known, data.size)
    by_numpy = arrays.computed(model.graph, node, 0, known, data.size)
    assert by_table is not None
    assert by_numpy is not None
    return by_table, by_numpy


@pytest.mark.parametrize("row", [0, 1, -1])
def test_a_slice_is_written(row):
    by_table, by_numpy = written("ScatterElements", [[row] * 9], [list(range(100, 109))], axis=0)
    numpy.testing.assert_array_equal(by_table, by_numpy)
    assert by_table[row].tolist() == list(range(100, 109))


def test_an_empty_slice_changes_nothing():
    by_table, by_numpy = written("ScatterND", numpy.zeros([0, 1], numpy.int64), numpy.zeros([0, 9]))
    numpy.testing.assert_array_equal(by_table, by_numpy)


@pytest.mark.parametrize("row", [2, -1])
def test_rows_count_from_the_end(row):
    by_table, by_numpy = written("ScatterND", [[row]], [list(range(100, 109))])
    numpy.testing.assert_array_equal(by_table, by_numpy)
