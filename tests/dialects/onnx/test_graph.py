"""The view of an ONNX model: attributes, constants and bodies under neutral names."""

from __future__ import annotations

import onnx.parser
import pytest
from dialects.onnx.graphs_of_nodes import graph_of
from onnx import TensorProto, helper

from graphpass.dialects.onnx.graph import build
from graphpass.errors import UnsupportedError


def test_namesakes_of_other_domains_have_their_domain():
    node = helper.make_node("Attention", ["x", "x", "x"], ["y"], domain="com.microsoft")
    assert [node.op for node in graph_of(node).nodes][-2:] == ["com.microsoft.Attention", "Result"]


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("y = Add (x, ids)", "Add y reads ids, which is not an input, an initializer or a result"),
        ("z = Add (x, x)", "no node computes its output y"),
    ],
)
def test_tensors_that_are_not_computed_are_refused(node, words):
    text = f'<ir_version: 8, opset_import: ["": 21]> graph (float[n] x) => (float[n] y) {{ {node} }}'
    with pytest.raises(UnsupportedError, match=f"GP310: the model is not valid: {words}"):
        build(onnx.parser.parse_model(text), None)


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
