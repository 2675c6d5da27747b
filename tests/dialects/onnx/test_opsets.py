"""Conversion to later opsets: what the converter changes beside operators is restored."""

from __future__ import annotations

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphpass.dialects.onnx.opsets import upgraded
from graphpass.errors import UnsupportedError

HIDDEN = 64


def build() -> onnx.ModelProto:
    """A model of opset 11 with weights inside and outside of the file, a body, and an operator of ONNX Runtime."""
    weight = numpy_helper.from_array(numpy.random.default_rng(0).normal(size=[HIDDEN, HIDDEN]), "inside")
    outside = TensorProto(name="outside", data_type=TensorProto.DOUBLE, dims=[HIDDEN, HIDDEN])
    outside.data_location = TensorProto.EXTERNAL
    outside.external_data.add(key="location", value="weights.bin")
    own = [helper.make_node("Unsqueeze", ["x"], ["branch"], "unsqueeze", axes=[0])]
    other = [helper.make_node("Unsqueeze", ["y"], ["branch"], "unsqueeze", axes=[0])]
    result = helper.make_tensor_value_info("branch", TensorProto.DOUBLE, [1, "rows", HIDDEN])
    nodes = [
        helper.make_node("MatMul", ["x", "inside"], ["y"], "first"),
        helper.make_node("MatMul", ["y", "outside"], ["z"], "second"),
        helper.make_node("SimplifiedLayerNormalization", ["z", "gamma"], ["normed"], "norm", axis=-1),
        helper.make_node("Softmax", ["normed"], ["shares"], "softmax"),
        helper.make_node("Relu", ["shares"], ["relu"], "relu", domain="mine"),
        helper.make_node(
            "If",
            ["condition"],
            ["result"],
            "if",
            then_branch=helper.make_graph(own, "own", [], [result]),
            else_branch=helper.make_graph(other, "other", [], [result]),
        ),
    ]
    nodes[0].metadata_props.add(key="source", value="line 1")
    graph = helper.make_graph(
        nodes,
        "graph",
        [
            helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["rows", HIDDEN]),
            helper.make_tensor_value_info("condition", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("result", TensorProto.DOUBLE, [1, "rows", HIDDEN]),
            helper.make_tensor_value_info("relu", TensorProto.DOUBLE, ["rows", HIDDEN]),
        ],
        [weight, outside, numpy_helper.from_array(numpy.ones(HIDDEN), "gamma")],
    )
    opsets = [helper.make_opsetid("", 11), helper.make_opsetid("mine", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=7)
    proto.metadata_props.add(key="made", value="by hand")
    return proto


def test_operators_are_converted_in_bodies_as_well():
    result = upgraded(build(), 17)
    assert [(entry.domain, entry.version) for entry in result.opset_import] == [("", 17), ("mine", 1)]
    nodes = {node.name: node for node in result.graph.node}
    for branch in nodes["if"].attribute:
        unsqueeze = next(node for node in branch.g.node if node.op_type == "Unsqueeze")
        assert (len(unsqueeze.input), len(unsqueeze.attribute)) == (2, 0)


def test_softmax_of_a_known_rank_stays_one_operator():
    """Before opset 13, it joins axes, which the converter would write as Flatten and Reshape."""
    kinds = [node.op_type for node in upgraded(build(), 13).graph.node]
    assert kinds.count("Softmax") == 1
    assert not {"Flatten", "Reshape"} & set(kinds)


def test_the_rest_is_unchanged():
    before = build()
    after = upgraded(before, 17)
    assert before == build()
    assert list(after.graph.initializer) == list(before.graph.initializer)
    assert list(after.metadata_props) == list(before.metadata_props)
    for field in ("input", "output", "value_info"):
        assert list(getattr(after.graph, field)) == list(getattr(before.graph, field))
    nodes = {node.name: node for node in after.graph.node}
    assert nodes["first"].metadata_props[0].value == "line 1"
    assert nodes["norm"].domain == ""
    branches = [attribute.g for attribute in nodes["if"].attribute]
    assert [list(branch.output) for branch in branches] == [list(before.graph.node[-1].attribute[0].g.output)] * 2


def test_functions_stay():
    proto = build()
    relu = helper.make_node("Relu", ["a"], ["b"])
    proto.functions.append(helper.make_function("mine", "Relu", ["a"], ["b"], [relu], [helper.make_opsetid("", 11)]))
    assert list(upgraded(proto, 17).functions) == list(proto.functions)


def test_what_the_converter_cannot_convert_is_refused():
    proto = build()
    proto.graph.node.append(helper.make_node("Upsample", ["x", "scales"], ["larger"], "upsample"))
    proto.opset_import[0].version = 9
    with pytest.raises(UnsupportedError, match=r"GP352.*opset 17"):
        upgraded(proto, 17)


def test_sparse_initializers_are_refused():
    proto = build()
    values = numpy_helper.from_array(numpy.ones(1), "sparse")
    places = numpy_helper.from_array(numpy.zeros(1, numpy.int64), "places")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4]))
    with pytest.raises(UnsupportedError, match=r"GP352.*sparse"):
        upgraded(proto, 17)
