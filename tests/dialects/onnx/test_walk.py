"""Traversals of ONNX graphs: order of nodes, names that bodies capture, and inferred shapes."""

import onnx
import pytest
from onnx import TensorProto, helper

from graphpass.dialects.onnx.walk import bodies, captured, in_order, inferred, opset_of
from graphpass.errors import UnsupportedError


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs.split(), [output], name=output, **attributes)


def body(nodes, output):
    return helper.make_graph(nodes, "body", [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)])


INNER = body([node("Add", "x own", "z"), node("Relu", "q", "own")], "z")
IF = node("If", "c", "i", then_branch=INNER, else_branch=body([node("Neg", "r", "n")], "n"))


@pytest.mark.parametrize(
    ("nodes", "order"),
    [
        ([node("Relu", "x", "a"), node("Neg", "x", "b")], "ab"),
        ([node("Add", "b x", "a"), node("Neg", "x", "b")], "ba"),
        ([node("Add", "b x", "a"), node("Neg", "a", "b"), node("Neg", "x", "c"), node("Neg", "a", "d")], "c"),
        ([IF, node("Neg", "x", "q")], "qi"),
    ],
)
def test_nodes_are_sorted_and_cycles_are_left_out(nodes, order):
    assert "".join(each.name for each in in_order(nodes, {"x", "c", "r"})) == order


def test_names_that_bodies_capture():
    assert sorted(captured(IF)) == ["q", "r", "x"]
    nested = node("If", "c", "i", then_branch=body([IF], "i"), else_branch=body([], "s"))
    assert sorted(captured(nested)) == ["c", "q", "r", "s", "x"]
    assert captured(node("Relu", "x", "a")) == []
    assert bodies(IF).keys() == {"then_branch", "else_branch"}


def model(nodes, opset=21):
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in (("x", [2, 3]), ("y", None))
    ]
    graph = helper.make_graph(nodes, "g", *ports)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx", opset)])


@pytest.mark.parametrize(("opset", "expected"), [(21, 21), (7, 7)])
def test_the_default_domain_has_two_names(opset, expected):
    assert opset_of(model([], opset)) == expected
    assert opset_of(onnx.ModelProto()) == 0


def test_shapes_of_unsorted_nodes_are_inferred():
    known = inferred(model([node("Relu", "a", "y"), node("Concat", "x x", "a", axis=0)]))
    assert [dimension.dim_value for dimension in known.graph.output[0].type.tensor_type.shape.dim] == [4, 3]


def test_an_inconsistent_model_is_refused():
    with pytest.raises(UnsupportedError, match="GP310"):
        inferred(model([node("Reshape", "x", "y")]))


def test_weights_are_left_out_but_their_types_are_known():
    proto = model([node("MatMul", "x w", "y")])
    proto.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [3, 40], [0.0] * 120))
    known = inferred(proto)
    assert not known.graph.initializer
    assert [dimension.dim_value for dimension in known.graph.output[0].type.tensor_type.shape.dim] == [2, 40]


def test_data_of_one_branch_is_not_taken_for_that_of_the_other():
    """onnx 1.23 propagates data by name, and both branches of a merged decoder have the same names."""
    flattened = [node("Concat", "rows six", "sizes", axis=0), node("Reshape", "x sizes", "z")]
    two = helper.make_node("Constant", [], ["rows"], value_ints=[2])
    rows = helper.make_node("Shape", ["x"], ["rows"], end=1)
    branches = {"then_branch": body([two, *flattened], "z"), "else_branch": body([rows, *flattened], "z")}
    chosen = node("If", "c", "y", **branches)
    known = inferred(
        helper.make_model(
            helper.make_graph(
                [helper.make_node("Constant", [], ["six"], value_ints=[6]), chosen],
                "graph",
                [
                    helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                    helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2, 3]),
                ],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            ),
            opset_imports=[helper.make_opsetid("", 18)],
        )
    )
    ends = {
        attribute.name: attribute.g.output[0].type.tensor_type.shape.dim for attribute in known.graph.node[1].attribute
    }
    assert [dimension.dim_value for dimension in ends["else_branch"]] in ([0, 6], [0, 0])


def test_carried_tensors_of_a_loop_get_the_rank_of_their_initial_value():
    ports = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (
            ("n", TensorProto.INT64, []),
            ("c", TensorProto.BOOL, []),
            ("s", TensorProto.FLOAT, None),
        )
    ]
    out = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in (("d", TensorProto.BOOL), ("t", TensorProto.FLOAT))
    ]
    inner = helper.make_graph([node("Identity", "c", "d"), node("Relu", "s", "t")], "b", ports, out)
    known = inferred(model([node("Loop", "m k x", "y", body=inner)]))
    loop = known.graph.node[0]
    carried = bodies(loop)["body"].input[2].type.tensor_type
    assert len(carried.shape.dim) == 2
    assert len(known.graph.output[0].type.tensor_type.shape.dim) == 2
