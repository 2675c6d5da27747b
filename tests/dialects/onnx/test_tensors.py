"""Tensors of ONNX models: their data, inline or in files."""

from __future__ import annotations

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphpass.dialects.onnx.tensors import check_tensor, element_code, embedded, nbytes, rebuilt, sample, tensors
from graphpass.errors import ReadError


def tensor_of(kind, dims, **fields):
    return TensorProto(name="w", data_type=kind, dims=dims, **fields)


@pytest.mark.parametrize(
    ("tensor", "size"),
    [
        (tensor_of(TensorProto.FLOAT, [2, 3]), 24),
        (tensor_of(TensorProto.INT4, [3]), 2),
        (tensor_of(TensorProto.BFLOAT16, []), 2),
        (tensor_of(TensorProto.STRING, [2]), 16),
        (tensor_of(TensorProto.FLOAT, [0, 3]), 0),
    ],
)
def test_sizes_follow_from_shape_and_type(tensor, size):
    assert nbytes(tensor) == size


@pytest.mark.parametrize(
    "tensor",
    [
        tensor_of(TensorProto.FLOAT, [2], raw_data=bytes(8)),
        tensor_of(TensorProto.FLOAT, [2], float_data=[1, 2]),
        tensor_of(TensorProto.INT4, [3], raw_data=bytes(2)),
        tensor_of(TensorProto.INT4, [3], int32_data=[1, 2]),
        tensor_of(TensorProto.COMPLEX64, [1], float_data=[1, 2]),
        tensor_of(TensorProto.FLOAT, [9], data_location=TensorProto.EXTERNAL),
        tensor_of(99, [2], raw_data=b""),
    ],
)
def test_data_of_the_right_size(tensor):
    check_tensor(tensor)


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (tensor_of(TensorProto.FLOAT, [2], raw_data=bytes(7)), "requires 8 bytes, got 7"),
        (tensor_of(TensorProto.FLOAT, [2], float_data=[1]), "requires 2 values, got 1"),
        (tensor_of(TensorProto.FLOAT, [2]), "requires 2 values, got 0"),
        (tensor_of(TensorProto.COMPLEX64, [1], float_data=[1]), "requires 2 values, got 1"),
        (tensor_of(TensorProto.FLOAT, [-1], raw_data=b""), "of negative size"),
        (tensor_of(TensorProto.UNDEFINED, [1], raw_data=b""), "of no type"),
        (tensor_of(TensorProto.FLOAT, [1], segment=TensorProto.Segment(begin=0, end=1)), "in segments"),
    ],
)
def test_data_of_another_size_is_refused(tensor, words):
    with pytest.raises(ReadError, match=words) as raised:
        check_tensor(tensor)
    assert raised.value.id == "GP112"


def external(folder, elements, **reference):
    (folder / "weights.bin").write_bytes(b"head" + elements.tobytes() + b"tail")
    tensor = tensor_of(TensorProto.FLOAT, elements.shape, data_location=TensorProto.EXTERNAL)
    for key, value in ({"location": "weights.bin", "offset": "4"} | reference).items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def test_external_data_is_embedded_and_sampled(tmp_path):
    elements = numpy.arange(100, dtype=numpy.float32)
    tensor = external(tmp_path, elements)
    inline = embedded(tensor, tmp_path / "model.onnx")
    assert numpy_helper.to_array(inline).tolist() == elements.tolist()
    assert embedded(inline, None) is inline
    ends = elements.tobytes()[:64] + elements.tobytes()[-64:]
    assert sample(tensor, tmp_path / "model.onnx") == sample(inline, None) == ends


def test_a_length_against_the_shape_is_refused(tmp_path):
    tensor = external(tmp_path, numpy.zeros(4, numpy.float32), length="12")
    with pytest.raises(ReadError, match=r"GP105: tensor 'w' has its 12 bytes of data .* \[4\] require 16"):
        embedded(tensor, tmp_path / "model.onnx")


def test_tensors_of_bodies_and_attributes_are_replaced():
    inner = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("inner", element_code("f32"), [1], [1]))
    result = helper.make_empty_tensor_value_info("c")
    body = helper.make_graph([inner], "body", [], [result])
    node = helper.make_node("If", ["flag"], ["y"], then_branch=body, else_branch=body)
    weight = helper.make_tensor("weight", element_code("f32"), [1], [2])
    proto = helper.make_model(helper.make_graph([node], "g", [], [], [weight]))
    before = proto.SerializeToString()
    made = rebuilt(proto, lambda tensor: helper.make_tensor("new", 1, [1], [3]) if tensor.name == "inner" else None)
    assert sorted(tensor.name for tensor in tensors(made)) == ["new", "new", "weight"]
    assert proto.SerializeToString() == before
    assert onnx.ModelProto.FromString(before).graph.initializer[0] == made.graph.initializer[0]
