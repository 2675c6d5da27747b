"""New weights: inline, or in a new data file."""

import numpy
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import graphpass
from graphpass.dialects.onnx.new_weights import NewWeights
from graphpass.dialects.onnx.tensors import is_external
from graphpass.testing import parse_model

TEXT = """%x = Parameter : f32[n, 64]
%first = Constant : f32[64, 64]
%second = Constant : f32[64, 64]
%a = MatMul(%x, %first)
%b = MatMul(%a, %second)
Result(%b) {name=y}"""


@pytest.fixture
def model(tmp_path):
    onnx.save(
        parse_model(TEXT).proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    return graphpass.load(tmp_path / "m.onnx")


def declared(model, weights, tensor):
    """Replace the first weight by ``tensor``, and move the second."""
    rewriter = model.rewriter()
    first, second = sorted(rewriter.graph.of_op("Constant"), key=lambda node: node.name)
    rewriter.replace(first.outputs[0], weights.declare(rewriter, tensor, "made"))
    weights.move_rest(rewriter, [second])
    weights.finish()
    if weights.file is not None:
        model.scratch += (weights.file,)
    rewriter.finish()


@pytest.mark.parametrize("external", [False, True])
def test_weights_are_written_in_pieces(model, external):
    before = {node.name: model.graph.constant(node.outputs[0], 1 << 20) for node in model.graph.of_op("Constant")}
    weights = NewWeights(model.path, "halved")
    (first,) = [node for node in model.graph.of_op("Constant") if node.name == "first"]
    pieces = [(numpy.frombuffer(piece, "f4") / 2).tobytes() for piece in weights.pieces(first.native)]
    made = weights.written(TensorProto.FLOAT, [64, 64], pieces, external=external)
    assert is_external(made) is external
    declared(model, weights, made)
    after = {node.name: model.graph.constant(node.outputs[0], 1 << 20) for node in model.graph.of_op("Constant")}
    assert set(after) == {"first", "second"}
    numpy.testing.assert_array_equal(after["first"], before["first"] / 2)
    numpy.testing.assert_array_equal(after["second"], before["second"])


def test_other_weights_stay_in_a_larger_file(model):
    weights = NewWeights(model.path, "halved")
    declared(model, weights, weights.written(TensorProto.FLOAT, [1], [bytes(4)], external=True))
    files = {node.name: node.native.external_data[0].value for node in model.graph.of_op("Constant")}
    assert files == {"first": weights.file.name, "second": "m.data"}


def test_without_external_weights_there_is_no_file(model):
    weights = NewWeights(model.path, "halved")
    made = weights.written(TensorProto.FLOAT, [2], [bytes(4), b"\x00\x00\x80?"], external=False)
    assert numpy_helper.to_array(made).tolist() == [0, 1]
    weights.finish()
    assert weights.file is None
