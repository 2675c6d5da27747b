"""Edits of ports, in both dialects."""

from __future__ import annotations

import onnx
import openvino
import pytest
from onnx import helper
from openvino import opset13 as ops

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.model import Model


def onnx_relu() -> OnnxModel:
    """``x -> Relu = inner -> Relu -> y``, with shapes of all."""
    nodes = [helper.make_node("Relu", ["x"], ["inner"]), helper.make_node("Relu", ["inner"], ["y"])]
    x, inner, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 4]) for name in ("x", "inner", "y")
    )
    graph = helper.make_graph(nodes, "graph", [x], [y], value_info=[inner])
    return OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


def openvino_relu() -> OpenVINOModel:
    x = ops.parameter(openvino.PartialShape([-1, 4]), openvino.Type.f32)
    inner = ops.relu(x)
    y = ops.relu(inner)
    for node, name in ((x, "x"), (inner, "inner"), (y, "y")):
        node.output(0).set_names({name})
    return OpenVINOModel(openvino.Model([ops.result(y)], [x], "relu"))


both = pytest.mark.parametrize("make", [onnx_relu, openvino_relu])


@both
def test_inputs_are_resized(make):
    model: Model = make()
    (read,) = model.graph.of_op("Parameter")
    rewriter = model.rewriter()
    rewriter.resize_port(read, [3, None])
    rewriter.forget_shapes()
    assert rewriter.finish()
    model.validate()
    assert [port.shape for port in model.inputs] == [(3, 4)]
    assert {value.shape for node in model.graph.nodes for value in node.outputs} == {(3, 4)}


@both
def test_a_tensor_inside_gives_up_its_name_to_an_input(make):
    model: Model = make()
    rewriter = model.rewriter()
    second = rewriter.input("inner", "f32", ["batch", 4])
    (result,) = model.graph.of_op("Result")
    rewriter.redirect(result, 0, rewriter.op("Add", result.source(), second, name="sum"))
    assert rewriter.finish()
    model.validate()
    assert [port.name for port in model.inputs] == ["x", "inner"]
    (add,) = model.graph.of_op("Add")
    assert [model.graph.producer(add.source(port)).op for port in (0, 1)] == ["Relu", "Parameter"]


@both
def test_a_replaced_value_means_its_replacement(make):
    model: Model = make()
    rewriter = model.rewriter()
    for relu in list(model.graph.of_op("Relu")):
        rewriter.replace(relu.outputs[0], rewriter.op("Tanh", relu.source(), name=f"{relu.name}/tanh"))
    assert rewriter.finish()
    model.validate()
    assert [node.op for node in model.graph.nodes if node.op not in {"Parameter", "Result"}] == ["Tanh", "Tanh"]
