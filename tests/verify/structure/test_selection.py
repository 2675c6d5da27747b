"""Operators that select elements: the largest, those at places, and those that are not zero."""

from __future__ import annotations

import numpy
import onnx
import onnx.parser
import openvino
import pytest
from mutants import attributes, moves, triggers  # noqa: F401 - registers their faults
from onnx import TensorProto
from openvino import opset13 as ops
from support.loaded import run_once
from verify.structure.comparing import is_equal, model_of_operator, read_by_openvino, unequal

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel

REAL, WHOLE = TensorProto.FLOAT, TensorProto.INT64


def selected(count: int = 2, written: int = 0, sorts: int = 1) -> OnnxModel:
    """Return a model that writes a number where the largest elements of each row are."""
    text = f"""<ir_version: 9, opset_import: ["": 18]>
    selected (float[batch, length, 40] hidden) => (float[batch, length, 40] logits) {{
        count = Constant <value_ints = [{count}]> ()
        values, places = TopK <sorted = {sorts}> (hidden, count)
        shape = Shape (places)
        zeros = ConstantOfShape <value = float[1] {{{written}}}> (shape)
        logits = ScatterElements <axis = 2> (hidden, places, zeros)
    }}"""
    return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def test_writes_at_the_largest_elements():
    model = selected()
    assert is_equal(model, model.clone())
    assert is_equal(model, run_once(model, "to-openvino").model)


@pytest.mark.parametrize("other", [selected(3), selected(written=1)], ids=["one more", "another number"])
def test_other_writes_are_not_equal(other):
    assert not is_equal(selected(), other)


def test_the_first_of_equal_elements_is_another_than_any():
    model = selected()
    assert not is_equal(model, read_by_openvino(model))
    assert is_equal(selected(sorts=0), read_by_openvino(selected(sorts=0)))


def one_hot_without_negative_indices() -> OpenVINOModel:
    hidden = ops.parameter([-1, -1, 4], numpy.int64, name="hidden")
    hidden.output(0).set_names({"hidden"})
    result = ops.one_hot(hidden, numpy.int64(6), numpy.float32(1), numpy.float32(0), axis=-1)
    result.output(0).set_names({"logits"})
    return OpenVINOModel(openvino.Model([result], [hidden], "one_hot"))


def test_negative_indices_of_one_hot_count_from_the_end_in_onnx():
    model = model_of_operator("OneHot", WHOLE, numpy.int64(6), numpy.float32([0, 1]))
    assert is_equal(model, read_by_openvino(model))
    ignoring = one_hot_without_negative_indices()
    assert is_equal(ignoring, ignoring.clone())
    assert not is_equal(model, ignoring)


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("keeps", [0, 1])
def test_the_place_of_the_largest_element(kind, keeps):
    model = model_of_operator(kind, REAL, axis=2, keepdims=keeps)
    assert is_equal(model, run_once(model, "to-openvino").model)
    other = model_of_operator("ArgMin" if kind == "ArgMax" else "ArgMax", REAL, axis=2, keepdims=keeps)
    assert not is_equal(model, other)
    assert not is_equal(model, model_of_operator(kind, REAL, axis=1, keepdims=keeps))
    assert not is_equal(model, model_of_operator(kind, REAL, axis=2, keepdims=keeps, select_last_index=1))


def counting(counted: str) -> OnnxModel:
    """Return a model whose result is the number of nonzero elements of one of two inputs."""
    make, ports = onnx.helper, ["first", "second"]
    nodes = [
        make.make_node("NonZero", [counted], ["places"], name="nonzero"),
        make.make_node("Shape", ["places"], ["count"], name="shape", start=1, end=2),
        make.make_node("Cast", ["count"], ["logits"], name="cast", to=onnx.TensorProto.FLOAT),
    ]
    inputs = [make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch"]) for name in ports]
    outputs = [make.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1])]
    graph = make.make_graph(nodes, "counting", inputs, outputs)
    return OnnxModel(make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9))


def test_sizes_of_data_are_equal_in_no_two_models():
    assert unequal(counting("first"), counting("second"), unpadded=False)
