"""ONNX models in bf16 and f16 compute in f32, bodies included; weights keep names and bytes."""

from __future__ import annotations

import numpy
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.precision import first_in_bf16, promote, without_bf16
from graphpass.errors import UnsupportedError

CODES = {"bf16": TensorProto.BFLOAT16, "f16": TensorProto.FLOAT16}
#: Exact in 8 bits.
WEIGHT = (numpy.arange(32).reshape(4, 8) - 16) / 8


def with_bodies(half: str) -> OnnxModel:
    """Tokens to hidden states, and a branch that captures a weight and holds another; one weight is an output."""
    code, info, node = CODES[half], helper.make_tensor_value_info, helper.make_node
    zeros = helper.make_tensor("zero", code, [1], [2.0])
    held = helper.make_tensor("inner", code, [8, 4], WEIGHT.ravel().tolist())
    branches = {
        "then_branch": helper.make_graph(
            [node("MatMul", ["x", "weight"], ["wide"]), node("MatMul", ["wide", "inner"], ["then"])],
            "then",
            [],
            [info("then", code, None)],
            [held],
        ),
        "else_branch": helper.make_graph(
            [
                node("Shape", ["x"], ["sizes"]),
                node("ConstantOfShape", ["sizes"], ["filled"], value=zeros),
                node("Cast", ["filled"], ["same"], to=code),
                node("Mul", ["same", "x"], ["else"]),
            ],
            "else",
            [],
            [info("else", code, None)],
        ),
    }
    nodes = [
        node("Constant", [], ["table"], value=helper.make_tensor("", code, [8, 4], WEIGHT.ravel().tolist())),
        node("Constant", [], ["half"], value=helper.make_tensor("", code, [], [0.5])),
        node("Gather", ["table", "ids"], ["rows"]),
        node("Mul", ["rows", "half"], ["x"]),
        node("If", ["choice"], ["y"], **branches),
        node("Cast", ["y"], ["z"], to=TensorProto.FLOAT),
    ]
    inputs = [info("ids", TensorProto.INT64, ["n"]), info("choice", TensorProto.BOOL, [])]
    outputs = [info("z", TensorProto.FLOAT, ["n", 4]), info("weight", code, [4, 8])]
    weight = helper.make_tensor("weight", code, [4, 8], WEIGHT.ravel().tolist())
    graph = helper.make_graph(nodes, "half", inputs, outputs, [weight])
    return OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))


@pytest.mark.parametrize("half", CODES)
def test_bodies_and_outputs_compute_in_f32(half: str) -> None:
    model = with_bodies(half)
    counts = promote(model)
    assert counts == {"operators": 1, "constants": 2, "weights": 3, "converts gone": 1}
    model.validate()
    assert {port.name: port.element_type for port in model.outputs} == {"z": "f32", "weight": "f32"}
    stored = {tensor.name: tensor.data_type for tensor in model.proto.graph.initializer}
    assert stored == {"weight/stored": CODES[half]}  # its name is the output's
    opened = onnxruntime.InferenceSession(model.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    rows = WEIGHT.reshape(8, 4)[[3, 7]] / 2
    wanted = {True: rows @ WEIGHT @ WEIGHT.reshape(8, 4), False: 2 * rows}
    for choice, numbers in wanted.items():
        got, weight = opened.run(None, {"ids": numpy.array([3, 7]), "choice": numpy.array(choice)})
        numpy.testing.assert_allclose(got, numbers)
        numpy.testing.assert_array_equal(weight, WEIGHT.astype(numpy.float32))
    assert promote(model) == {}


def test_sessions_leave_other_models_alone() -> None:
    half, brain = with_bodies("f16"), with_bodies("bf16")
    assert without_bf16(half) is half
    assert first_in_bf16(half) is None
    copy = without_bf16(brain)
    assert first_in_bf16(brain) is not None
    assert first_in_bf16(copy) is None


def test_functions_compute_in_f32() -> None:
    value, node = helper.make_tensor_value_info, helper.make_node
    table = helper.make_tensor("", TensorProto.BFLOAT16, [4, 8], WEIGHT.ravel().tolist())
    inside = [
        node("Cast", ["a"], ["narrow"], to=TensorProto.BFLOAT16),
        node("Constant", [], ["table"], value=table),
        node("MatMul", ["narrow", "table"], ["b"]),
    ]
    function = helper.make_function("own", "Product", ["a"], ["b"], inside, [helper.make_opsetid("", 18)])
    nodes = [node("Product", ["x"], ["wide"], domain="own"), node("Cast", ["wide"], ["y"], to=TensorProto.FLOAT)]
    ports = [value("x", TensorProto.FLOAT, [2, 4])], [value("y", TensorProto.FLOAT, [2, 8])]
    known = [value("wide", TensorProto.BFLOAT16, [2, 8])]
    graph = helper.make_graph(nodes, "calls", *ports, value_info=known)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model = OnnxModel(helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=9))
    promote(model)
    opened = onnxruntime.InferenceSession(model.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    given = numpy.arange(8, dtype=numpy.float32).reshape(2, 4)
    numpy.testing.assert_allclose(opened.run(None, {"x": given})[0], given @ WEIGHT)


@pytest.mark.skipif(not onnx.defs.has("BitCast", 26, ""), reason="this onnx does not know the operator")
def test_bitcasts_to_bf16_are_refused() -> None:
    nodes = [
        helper.make_node("BitCast", ["x"], ["bits"], "bits", to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["bits"], ["y"], to=TensorProto.FLOAT),
    ]
    ports = [helper.make_tensor_value_info("x", TensorProto.UINT16, [4])]
    graph = helper.make_graph(nodes, "bits", ports, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])])
    model = OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=13))
    with pytest.raises(UnsupportedError, match=r"GP327.*BitCast bits returns f16 or bf16 for any type of its inputs"):
        promote(model)
