"""The view of an ONNX model: attributes, constants and bodies under neutral names."""

from __future__ import annotations

import numpy
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphpass.dialects.onnx.graph import build

SHAPES = {"x": ["n", 3, 4], "ids": ["n", 1]}


def graph_of(*nodes, opset=21, inline=False, **weights):
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPES["x"]),
        helper.make_tensor_value_info("ids", TensorProto.INT64, SHAPES["ids"]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
    ]
    outputs = [helper.make_empty_tensor_value_info(nodes[-1].output[0])]
    made = [numpy_helper.from_array(numpy.array(value), name) for name, value in weights.items()]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, made),
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)],
        ir_version=8,
    )
    return build(proto, None, inline=inline)


@pytest.mark.parametrize(
    ("op", "inputs", "given", "opset", "stated"),
    [
        ("Gather", ["x", "ids"], {}, 21, {"axis": 0}),
        ("Softmax", ["x"], {}, 21, {"axis": 2}),
        ("Softmax", ["x"], {}, 12, {"axis": 1, "flattens": True}),
        ("Softmax", ["x"], {"axis": -1}, 12, {"axis": 2}),
        ("Transpose", ["x"], {}, 21, {"order": (2, 1, 0)}),
        ("Unsqueeze", ["x", "last"], {}, 21, {"axes": (3,)}),
        ("Squeeze", ["ids", "last"], {}, 21, {"axes": (1,)}),
        ("Reshape", ["x", "last"], {"allowzero": 1}, 21, {"special_zero": False}),
        ("ReduceSum", ["x"], {"keepdims": 0}, 21, {"axes": (0, 1, 2), "keeps_axes": False}),
        ("ReduceSum", ["x"], {"noop_with_empty_axes": 1}, 21, {"axes": (), "keeps_axes": True}),
        ("ReduceMax", ["x", "last"], {}, 21, {"axes": (2,)}),
        ("ReduceMean", ["x"], {"axes": [-1]}, 17, {"axes": (2,)}),
        ("TopK", ["x", "last"], {"largest": 0, "sorted": 0}, 21, {"axis": 2, "mode": "min", "sort": "none"}),
        ("ScatterElements", ["x", "ids", "x"], {"reduction": "add"}, 21, {"axis": 0, "reduction": "sum"}),
        ("Pad", ["x", "last"], {"mode": "constant"}, 21, {}),
        ("Pad", ["x", "last"], {"mode": "edge"}, 21, {"pad_mode": "edge"}),
        ("Trilu", ["x"], {}, 21, {"upper": True}),
        ("ConstantOfShape", ["last"], {}, 21, {"value": 0.0}),
    ],
)
def test_attributes_have_neutral_names_and_defaults(op, inputs, given, opset, stated):
    outputs = ["y", "places"] if op == "TopK" else ["y"]
    graph = graph_of(helper.make_node(op, inputs, outputs, **given), opset=opset, last=[-1])
    assert graph.producer(graph.writes["y"].source()).attributes == stated


@pytest.mark.parametrize(
    ("given", "stated"),
    [
        ({}, {"alpha": 1.0, "transpose_a": False, "transpose_b": False}),
        ({"transB": 1, "alpha": 0.5}, {"alpha": 0.5, "transpose_a": False, "transpose_b": True}),
        ({"transB": 1, "transBatchA": 1}, {"alpha": 1.0}),
    ],
)
def test_a_fused_product_that_transposes_batches_has_no_flags(given, stated):
    (node,) = graph_of(helper.make_node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", **given)).of_op(
        "FusedMatMul"
    )
    assert node.attributes == stated


def test_namesakes_of_other_domains_have_their_domain():
    node = helper.make_node("Attention", ["x", "x", "x"], ["y"], domain="com.microsoft")
    assert [node.op for node in graph_of(node).nodes][-2:] == ["com.microsoft.Attention", "Result"]


@pytest.mark.parametrize(
    ("given", "content"),
    [
        ({"value_int": 3}, 3),
        ({"value_floats": [0.5, 1.0]}, [0.5, 1.0]),
        ({"value": helper.make_tensor("t", TensorProto.INT64, [1], [7])}, [7]),
        ({"value_string": "a"}, None),
    ],
)
def test_constants_that_cannot_be_read_are_operators(given, content):
    graph = graph_of(helper.make_node("Constant", [], ["y"], **given))
    value = graph.writes["y"].source()
    assert graph.producer(value).op == ("OpaqueConstant" if content is None else "Constant")
    read = graph.constant(value)
    assert (None if read is None else read.tolist()) == content


@pytest.mark.parametrize(("inline", "operators"), [(False, ["If", "Result"]), (True, ["Tanh", "Relu", "If", "Result"])])
def test_branches_are_inlined_or_read_what_they_capture(inline, operators):
    def branch(op):
        result = helper.make_empty_tensor_value_info(f"{op}.y")
        return helper.make_graph([helper.make_node(op, ["x"], [f"{op}.y"])], op, [], [result])

    node = helper.make_node("If", ["flag"], ["y"], then_branch=branch("Relu"), else_branch=branch("Tanh"))
    graph = graph_of(node, inline=inline)
    assert [node.op for node in graph.nodes if node.op != "Parameter"] == operators
    (chosen,) = graph.of_op("If")
    assert [value.name for value in chosen.sources] == (["flag", "Relu.y", "Tanh.y"] if inline else ["flag", "x"])
