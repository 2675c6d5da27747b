"""The dialect-neutral view: the same facts of ONNX and OpenVINO graphs."""

from __future__ import annotations

import time

import numpy
import openvino
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper
from openvino import opset13 as ops
from support.loaded import onnx_model, openvino_model

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.graph import Graph, Node


def onnx_graph(nodes: list[NodeProto], inputs: dict[str, list], outputs: list[str], **weights: numpy.ndarray) -> Graph:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return OnnxModel(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    ).graph


def the(graph: Graph, op: str) -> Node:
    (node,) = graph.of_op(op)
    return node


@pytest.mark.parametrize("kinds", [("Relu", "Neg"), ("Neg", "Relu")])
def test_operands_come_first_in_any_order_of_the_file(kinds):
    both = [helper.make_node(kind, ["x"], [kind.lower()]) for kind in kinds]
    add = helper.make_node("Add", ["neg", "relu"], ["sum"])
    result = helper.make_node("Mul", ["sum", "neg"], ["y"])
    graph = onnx_graph([*both, add, result], {"x": [2]}, ["y"])
    ends = the(graph, "Result").inputs
    names = [node.op for node in graph.operands_first(ends, lambda node: node.inputs)]
    assert names == ["Parameter", "Negative", "Relu", "Add", "Multiply"]
    assert [node.op for node in graph.operands_first(ends, lambda node: node.inputs[:1])] == [
        "Parameter",
        "Negative",
        "Add",
        "Multiply",
    ]


@pytest.mark.parametrize("name", ["llama", "lfm2", "granitemoehybrid", "mamba"])
def test_inputs_of_a_node_come_before_it(name):
    graph = openvino_model(name).graph
    assert [node.index for node in graph.nodes] == list(range(len(graph.nodes)))
    assert all(value.node < node.index for node in graph.nodes for value in node.inputs if value is not None)


def test_onnx_nodes_in_any_order_of_the_file():
    model = onnx_model("llama").clone()
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in reversed(model.proto.graph.node)]
    del model.proto.graph.node[:]
    model.proto.graph.node.extend(nodes)
    model.mark_edited()
    assert all(value.node < node.index for node in model.graph.nodes for value in node.inputs if value is not None)
    caches = graphpass.analyze_caches(onnx_model("llama")).caches
    assert graphpass.analyze_caches(model).caches == caches


def test_uses_and_producers_agree():
    graph = onnx_model("qwen3").graph
    for node in graph.nodes:
        for port, value in enumerate(node.inputs):
            if value is not None:
                assert (node.index, port) in {(use.node.index, use.port) for use in graph.uses(value)}
                assert value in graph.producer(value).outputs
    assert set(graph.edges.nodes) == set(range(len(graph.nodes)))


class TestAttributes:
    def test_onnx_axes_count_from_the_front(self):
        nodes = [
            helper.make_node("Concat", ["x", "x"], ["c"], axis=-2),
            helper.make_node("Unsqueeze", ["c", "axes"], ["u"]),
            helper.make_node("Transpose", ["u"], ["t"], perm=[0, 2, 1, 3]),
            helper.make_node("Softmax", ["t"], ["s"]),
        ]
        graph = onnx_graph(nodes, {"x": ["B", "L", 4]}, ["s"], axes=numpy.array([-3]))
        assert the(graph, "Concat").attributes["axis"] == 1
        assert the(graph, "Unsqueeze").attributes["axes"] == (1,)
        assert the(graph, "Transpose").attributes["order"] == (0, 2, 1, 3)
        assert the(graph, "Softmax").attributes["axis"] == 3

    def test_a_transpose_without_order_reverses(self):
        graph = onnx_graph([helper.make_node("Transpose", ["x"], ["y"])], {"x": ["B", 3, 4]}, ["y"])
        assert the(graph, "Transpose").attributes["order"] == (2, 1, 0)
        x = ops.parameter(openvino.PartialShape([-1, 3, 4]), openvino.Type.f32)
        native = openvino.Model([ops.result(ops.transpose(x, ops.constant(numpy.array([], numpy.int64))))], [x], "")
        assert the(OpenVINOModel(native).graph, "Transpose").attributes["order"] == (2, 1, 0)

    def test_openvino_axes_count_from_the_front(self):
        x = ops.parameter(openvino.PartialShape([-1, -1, 4]), openvino.Type.f32)
        last = ops.softmax(ops.unsqueeze(ops.concat([x, x], -2), ops.constant([-3])), -1)
        graph = OpenVINOModel(
            openvino.Model([ops.result(ops.gather(last, ops.constant([0]), ops.constant(-1)))], [x], "")
        ).graph
        assert the(graph, "Concat").attributes["axis"] == 1
        assert the(graph, "Unsqueeze").attributes["axes"] == (1,)
        assert the(graph, "Softmax").attributes["axis"] == 3
        assert the(graph, "Gather").attributes["axis"] == 3


class TestConstants:
    @pytest.mark.parametrize(
        ("attribute", "expected"),
        [
            ({"value": numpy_helper.from_array(numpy.array([1, 2]))}, [1, 2]),
            ({"value_int": 3}, 3),
            ({"value_ints": [3, 4]}, [3, 4]),
            ({"value_float": 0.5}, 0.5),
            ({"value_floats": [0.5, 1.5]}, [0.5, 1.5]),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_every_form_of_an_onnx_constant_is_read(self, attribute, expected):
        nodes = [helper.make_node("Constant", [], ["c"], **attribute), helper.make_node("Identity", ["c"], ["y"])]
        graph = onnx_graph(nodes, {}, ["y"])
        value = the(graph, "Constant").outputs[0]
        assert graph.constant(value).tolist() == expected
        assert value.shape == numpy.shape(expected)

    def test_axes_in_a_constant_of_another_form(self):
        nodes = [
            helper.make_node("Constant", [], ["axes"], value_ints=[-1]),
            helper.make_node("Unsqueeze", ["x", "axes"], ["y"]),
        ]
        assert the(onnx_graph(nodes, {"x": ["B", 3]}, ["y"]), "Unsqueeze").attributes["axes"] == (2,)

    def test_constants_of_strings_are_read(self):
        nodes = [
            helper.make_node("Constant", [], ["c"], value_strings=["a"]),
            helper.make_node("Identity", ["c"], ["y"]),
        ]
        graph = onnx_graph(nodes, {}, ["y"])
        assert graph.constant(the(graph, "Identity").inputs[0]) is None

    def test_large_constants_are_not_read(self):
        graph = onnx_graph(
            [helper.make_node("Add", ["x", "w"], ["y"])], {"x": [5000]}, ["y"], w=numpy.ones(5000, numpy.float32)
        )
        assert graph.constant(the(graph, "Constant").outputs[0]) is None
        assert graph.constant(the(graph, "Constant").outputs[0], limit=5000).sum() == 5000

    def test_small_constants_are_read_once(self):
        graph = onnx_graph(
            [helper.make_node("Add", ["x", "w"], ["y"])], {"x": [5]}, ["y"], w=numpy.ones(5, numpy.float32)
        )
        (constant,) = graph.of_op("Constant")
        assert graph.constant(constant.outputs[0]) is graph.constant(constant.outputs[0])

    def test_other_values_are_not_constant(self):
        graph = onnx_graph([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"])
        assert graph.constant(the(graph, "Relu").outputs[0]) is None
        assert graph.constant(None) is None


class TestOddOnnx:
    def test_an_initializer_listed_as_input(self):
        """As models of IR version 3 have it."""
        graph = onnx_graph(
            [helper.make_node("Add", ["x", "w"], ["y"])], {"x": [2], "w": [2]}, ["y"], w=numpy.ones(2, numpy.float32)
        )
        assert [node.name for node in graph.of_op("Parameter")] == ["x"]
        assert the(graph, "Constant").name == "w"

    def test_an_omitted_input_and_an_unused_output(self):
        nodes = [
            helper.make_node(
                "GroupQueryAttention", ["q", "k", "v", "", "", "n", "n"], ["y", "", ""], domain="com.microsoft"
            )
        ]
        graph = onnx_graph(nodes, {name: ["B", "L", 8] for name in "qkvn"}, ["y"])
        node = the(graph, "GroupQueryAttention")
        assert node.inputs[3:5] == (None, None)
        assert len(node.outputs) == 3

    def test_an_input_returned_as_output(self):
        graph = onnx_graph([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, ["y", "x"])
        result = next(node for node in graph.of_op("Result") if node.name == "x")
        assert graph.producer(result.inputs[0]).op == "Parameter"

    def test_a_body_reading_outer_values(self):
        body = helper.make_graph(
            [helper.make_node("Relu", ["x"], ["inner"])], "b", [], [helper.make_empty_tensor_value_info("inner")]
        )
        nodes = [
            helper.make_node("Constant", [], ["condition"], value=numpy_helper.from_array(numpy.array(True))),
            helper.make_node("If", ["condition"], ["y"], then_branch=body, else_branch=body),
        ]
        graph = onnx_graph(nodes, {"x": [2]}, ["y"])
        assert the(graph, "Parameter").outputs[0] in the(graph, "If").inputs


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_a_long_chain_needs_no_recursion(dialect, capsys):
    """5,000 nodes one behind the other: nothing recurses, and depths are lengths."""
    if dialect == "onnx":
        nodes = [helper.make_node("Relu", [f"x{i}"], [f"x{i + 1}"]) for i in range(5000)]
        graph_proto = helper.make_graph(
            nodes,
            "chain",
            [helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["B", 2, 3])],
            [helper.make_tensor_value_info("x5000", TensorProto.FLOAT, ["B", 2, 3])],
        )
        model = OnnxModel(helper.make_model(graph_proto))
    else:
        first = node = ops.parameter(openvino.PartialShape([-1, 2, 3]), openvino.Type.f32)
        kept = []
        for _ in range(5000):
            node = ops.relu(node)
            kept.append(node)
        model = OpenVINOModel(openvino.Model([ops.result(node)], [first], "chain"))
    start = time.perf_counter()
    graphpass.analyze_caches(model)
    assert max(model.graph.depths) == 5001
    with capsys.disabled():
        print(f"\n{dialect}: 5,000 nodes in {time.perf_counter() - start:.2f} s")  # noqa: T201 - a measurement
