"""Weights rounded to types of 16 bits, in memory and in data files."""

import numpy
import onnx
import pytest
from onnx import numpy_helper

import graphpass
from graphpass.dialects.onnx.half_weights import HalfWeights
from graphpass.testing import parse_model


@pytest.mark.parametrize(
    ("half", "cut", "numbers", "rounded", "overflows"),
    [
        ("f16", False, [1.0, 0.1], [1.0, 0.0999755859375], False),
        ("f16", False, [1e6, 1.0], [numpy.inf, 1.0], True),
        ("f16", True, [1e6, -1e6], [65504.0, -65504.0], False),
        ("f16", False, [numpy.inf], [numpy.inf], False),
        ("bf16", False, [1e6, 0.1], [999424.0, 0.10009765625], False),
    ],
)
def test_numbers_are_rounded_or_cut(half, cut, numbers, rounded, overflows):
    tensor = numpy_helper.from_array(numpy.array(numbers, numpy.float32))
    made, beyond = HalfWeights(None, half).rounded(tensor, cut=cut)
    assert made.data_type == {"f16": onnx.TensorProto.FLOAT16, "bf16": onnx.TensorProto.BFLOAT16}[half]
    assert numpy_helper.to_array(made).astype(numpy.float32).tolist() == rounded
    assert beyond == overflows


def test_weights_in_data_files_are_written_to_a_new_one(tmp_path):
    text = "%x = Parameter : f32[4, 64]\n%w = Constant : f32[64, 64]\n%y = MatMul(%x, %w)\nResult(%y) {name=y}"
    model = parse_model(text)
    array = numpy_helper.to_array(model.proto.graph.initializer[0])
    onnx.save(model.proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    stored = graphpass.load(tmp_path / "m.onnx")
    weights = HalfWeights(stored.path, "f16")
    made, beyond = weights.rounded(stored.proto.graph.initializer[0], cut=False)
    assert made.data_location == onnx.TensorProto.EXTERNAL
    assert not beyond
    assert {entry.key: entry.value for entry in made.external_data}["length"] == str(array.nbytes // 2)
