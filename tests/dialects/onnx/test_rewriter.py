"""Edits of ONNX models."""

from __future__ import annotations

import numpy
import onnx
import onnxruntime
import openvino
import pytest

from graphpass.errors import UnsupportedError
from graphpass.testing import parse_model

RELU = """
%x = Parameter : f32[batch, 4]
%inner = Relu(%x) : f32[batch, 4]
%y = Relu(%inner) : f32[batch, 4]
Result(%y) {name=y}
"""


def operators(model):
    return [node.op for node in model.graph.nodes if node.op not in {"Parameter", "Constant", "Result"}]


def test_outputs_are_resized():
    model = parse_model(RELU)
    (result,) = model.graph.of_op("Result")
    rewriter = model.rewriter()
    rewriter.resize_port(result, [None, 8])
    assert rewriter.finish()
    assert [port.shape for port in model.outputs] == [("batch", 8)]


def test_a_tensor_inside_gives_up_its_name_to_an_output():
    model = parse_model(RELU)
    (read,), (result,) = model.graph.of_op("Parameter"), model.graph.of_op("Result")
    rewriter = model.rewriter()
    rewriter.add_present(result, "inner", [None, None], rewriter.op("Negative", read.outputs[0], name="negative"))
    assert rewriter.finish()
    model.validate()
    makers = {node.name: model.graph.producer(node.source()).op for node in model.graph.of_op("Result")}
    assert makers == {"inner": "Negative", "y": "Relu"}


@pytest.mark.parametrize(("opset", "kind"), [(18, "QuickGelu"), (24, "Swish")])
def test_swish_is_an_operator_of_the_opset_or_of_onnx_runtime(opset, kind, tmp_path):
    model = parse_model(RELU)
    model.proto.opset_import[0].version = opset
    (first, _) = model.graph.of_op("Relu")
    rewriter = model.rewriter()
    rewriter.replace(first.outputs[0], rewriter.op("Swish", first.source(), name="swish"))
    assert rewriter.finish()
    model.validate()
    assert [node.op for node in model.graph.nodes] == ["Parameter", kind, "Relu", "Result"]
    x = numpy.linspace(-3, 3, 8, dtype=numpy.float32).reshape(2, 4)
    expected = numpy.maximum(x / (1 + numpy.exp(-x)), 0)
    session = onnxruntime.InferenceSession(model.proto.SerializeToString())
    numpy.testing.assert_allclose(session.run(None, {"x": x})[0], expected, atol=1e-6)
    onnx.save(model.proto, tmp_path / "swish.onnx")
    numpy.testing.assert_allclose(openvino.compile_model(tmp_path / "swish.onnx")(x)[0], expected, atol=1e-6)


def test_operators_before_opset_13_are_refused():
    model = parse_model(RELU)
    model.proto.opset_import[0].version = 12
    with pytest.raises(UnsupportedError, match="GP340"):
        model.rewriter().op("Relu", model.graph.parameters["x"], name="new")


def test_equal_constants_are_created_once():
    rewriter = parse_model(RELU).rewriter()
    made = rewriter.constant([1, 2], "i64", "a")
    assert rewriter.constant((1, 2), "i64", "b") is made
    assert rewriter.constant([1, 2], "f32", "d") is not made
    assert rewriter.constant([[1, 2]], "i64", "e") is not made


def test_an_input_becomes_an_output_through_an_identity():
    model = parse_model(RELU)
    *_, last = model.graph.of_op("Relu")
    rewriter = model.rewriter()
    rewriter.replace(last.outputs[0], rewriter.native(model.graph.parameters["x"]))
    assert rewriter.finish()
    model.validate()
    assert operators(model) == ["Identity"]
    assert ([port.name for port in model.inputs], [port.name for port in model.outputs]) == (["x"], ["y"])


def test_ports_exchange_their_names():
    model = parse_model(RELU)
    (read,), (result,) = model.graph.of_op("Parameter"), model.graph.of_op("Result")
    rewriter = model.rewriter()
    rewriter.rename_ports({read: "y", result: "x"})
    assert rewriter.finish()
    model.validate()
    assert ([port.name for port in model.inputs], [port.name for port in model.outputs]) == (["y"], ["x"])


def test_inputs_with_users_are_not_dropped():
    model = parse_model(f"%idle = Parameter : f32[4]\n{RELU}")
    rewriter = model.rewriter()
    assert [rewriter.drop_input(name) for name in ("x", "nothing", "idle")] == [False, False, True]
    rewriter.finish()
    assert [port.name for port in model.inputs] == ["x"]


def test_uses_are_redirected_by_a_condition():
    model = parse_model(RELU.replace("Relu(%inner)", "Add(%inner, %x)"))
    x = model.graph.parameters["x"]
    rewriter = model.rewriter()
    assert rewriter.redirect_uses(x, rewriter.op("Tanh", x, name="new"), lambda use: use.node.op == "Add") == 1
    rewriter.finish()
    (add,) = model.graph.of_op("Add")
    assert [model.graph.producer(source).op for source in add.inputs] == ["Relu", "Tanh"]


def test_outputs_keep_their_rank_when_shapes_are_forgotten():
    model = parse_model(RELU)
    rewriter = model.rewriter()
    rewriter.forget_shapes()
    rewriter.rename_dimension("batch", "rows")
    assert rewriter.finish()
    assert [port.shape for port in (*model.inputs, *model.outputs)] == [("rows", 4), (None, None)]
