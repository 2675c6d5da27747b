"""Demotion: casts at borders, numbers beyond the range, and weights in files."""

from __future__ import annotations

from pathlib import Path

import numpy
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.half_models import demoted
from support.loaded import exported

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.errors import UnsupportedError
from graphpass.runtime import open_session
from graphpass.verify import compare


def of_one_weight(weight: numpy.ndarray, op: str = "MatMul") -> OnnxModel:
    """Tokens to hidden states by a table, and one operator with a weight."""
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Gather", ["table", "ids"], ["x"]), helper.make_node(op, ["x", "weight"], ["y"], "last")]
    table = numpy.ones((3, 4), numpy.float32)
    held = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(weight.astype(numpy.float32), "weight")]
    ports = [info("ids", TensorProto.INT64, [1, "n"])], [info("y", TensorProto.FLOAT, None)]
    return OnnxModel(helper.make_model(helper.make_graph(nodes, "one", *ports, held), ir_version=10))


def test_casts_are_at_borders_only():
    made, done = demoted(exported("llama/onnx"), "ort{precision=f16}")
    # The bias that hides padding, and the logits: tables of angles are rounded as weights are.
    assert done.statistics["casts added"] == 2
    assert done.notes == ("4 caches are f16; other inputs and outputs keep their types",)
    wide = {node.op for node in made.graph.nodes if any(value.element_type == "f32" for value in node.outputs)}
    assert not wide & {"Gather", "GroupQueryAttention", "MatMul", "RotaryEmbedding", "SimplifiedLayerNormalization"}


def test_fully_masked_rows_stay_finite():
    made, _ = demoted(exported("llama/onnx"))
    session = open_session(made)
    mask = numpy.array([[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    session.forward(numpy.full((2, 6), 7), mask)
    assert numpy.isfinite(session.logits).all()


def test_a_bias_is_cut_to_the_range_of_f16():
    info, lowest = helper.make_tensor_value_info, float(numpy.finfo(numpy.float32).min)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("Where", ["seen", "zero", "lowest"], ["bias"]),
        helper.make_node("Gemm", ["x", "weight", "bias"], ["y"]),
    ]
    held = [numpy_helper.from_array(numpy.ones((3, 4), numpy.float32), name) for name in ("table",)]
    held += [numpy_helper.from_array(numpy.ones((4, 4), numpy.float32), "weight")]
    held += [numpy_helper.from_array(numpy.float32(number), name) for name, number in (("zero", 0), ("lowest", lowest))]
    ports = [info("ids", TensorProto.INT64, [2]), info("seen", TensorProto.BOOL, [2, 4])]
    graph = helper.make_graph(nodes, "biased", ports, [info("y", TensorProto.FLOAT, [2, 4])], held)
    model = OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))
    made, done = demoted(model)
    assert len(list(made.graph.of_op("Clip"))) == 1
    assert (done.statistics["weights rounded"], done.statistics["casts added"]) == (2, 2)
    seen = numpy.array([[True, False, True, True], [False, False, False, False]])
    opened = onnxruntime.InferenceSession(made.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (given,) = opened.run(None, {"ids": numpy.array([0, 1]), "seen": seen})
    assert numpy.allclose(given, numpy.where(seen, 4.0, -65504.0), rtol=1e-3)


def test_weights_beyond_f16_are_refused_with_their_names():
    weight = numpy.ones((4, 4))
    demoted(of_one_weight(weight * 65504))
    with pytest.raises(UnsupportedError, match=r"GP398: .*: weight weight of MatMul last exceeds the range of f16"):
        demoted(of_one_weight(weight * 65536))
    with pytest.raises(UnsupportedError, match="GP398"):
        demoted(of_one_weight(numpy.array(1e6), "Mul"))
    made, _ = demoted(of_one_weight(numpy.array(1e6), "Min"))
    assert any(
        numpy_helper.to_array(tensor).item() == 65504 for tensor in made.proto.graph.initializer if not tensor.dims
    )


def test_external_weights_are_written_once_to_a_new_file(tmp_path):
    model = exported("llama/onnx")
    source, proto = tmp_path / "in", onnx.ModelProto()
    source.mkdir()
    proto.CopyFrom(model.proto)
    first = next(tensor for tensor in proto.graph.initializer if list(tensor.dims) == [64, 64])
    for tensor in proto.graph.initializer:
        if list(tensor.dims) == [64, 64]:
            tensor.raw_data = first.raw_data
    onnx.save(proto, source / "model.onnx", save_as_external_data=True, location="weights", size_threshold=100)
    given = graphpass.load(source / "model.onnx")
    made, _ = demoted(given)
    (held,) = made.scratch
    place = held.find(held.name)
    assert place is not None
    graphpass.save(made, tmp_path / "out" / "model.onnx")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [held.name, "model.onnx"]
    # Alignment adds less than one page a weight.
    assert held.size < (source / "weights").stat().st_size * 0.5 + 4096 * 20
    assert compare(given, graphpass.load(tmp_path / "out"), steps=2).passed
    squares = [tensor for tensor in made.proto.graph.initializer if list(tensor.dims) == [64, 64]]
    assert len({tensor.external_data[1].value for tensor in squares}) == 1
    del made, held
    assert not Path(place).exists()
