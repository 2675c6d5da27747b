"""Integers of 4 bits share bytes, and both dialects read them as numbers."""

import io

import numpy
import openvino
import pytest
from onnx import TensorProto, helper

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.packed_bits import numbers_of, packed, unpacked


@pytest.mark.parametrize(
    ("numbers", "stored"), [([[1, 2, 15, 0]], [[0x21, 0x0F]]), ([[1, 2, 3]], [[0x21, 0x03]]), ([[], []], [[], []])]
)
def test_pairs_share_a_byte_with_the_first_in_the_lower_bits(numbers, stored):
    array = numpy.array(numbers, numpy.uint8)
    assert packed(array).tolist() == stored
    assert unpacked(packed(array))[:, : array.shape[1]].tolist() == numbers
    assert packed(array, 8) is array is unpacked(array, 8)


@pytest.mark.parametrize(("element_type", "least", "native"), [("u4", 0, "UINT4"), ("i4", -8, "INT4")])
def test_constants_are_numbers_in_both_dialects(element_type, least, native):
    numbers = numpy.arange(15).reshape(3, 5) + least
    assert numbers_of(packed((numbers.reshape(-1) & 15).astype(numpy.uint8)), element_type, (3, 5)).tolist() == (
        numbers.tolist()
    )
    weight = helper.make_tensor("weight", getattr(TensorProto, native), numbers.shape, numbers.reshape(-1))
    node = helper.make_node("Cast", ["weight"], ["wide"], to=TensorProto.FLOAT)
    info = helper.make_tensor_value_info
    total = helper.make_node("Add", ["wide", "x"], ["y"])
    ends = info("x", TensorProto.FLOAT, ["n", 5]), info("y", TensorProto.FLOAT, [3, 5])
    graph = helper.make_graph([node, total], "graph", ends[:1], ends[1:], [weight])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    read = OpenVINOModel(openvino.Core().read_model(io.BytesIO(proto.SerializeToString())))
    for model in (OnnxModel(proto), read):
        values = [one.outputs[0] for one in model.graph.of_op("Constant")]
        (stored,) = [model.graph.constant(one) for one in values if one.element_type == element_type]
        assert stored.tolist() == numbers.tolist()
