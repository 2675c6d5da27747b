"""Values of bodies with the names of other bodies' values."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from graphpass.dialects.onnx.unique_names import with_former_names, with_unique_names


def build(*, named_apart: bool = False) -> onnx.ModelProto:
    """An If whose branches both have values h and y; the second reads the outer x in a nested body."""
    other = "_other" if named_apart else ""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    first = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["h"]), helper.make_node("Neg", ["h"], ["y"])],
        "first",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
    )
    inner = helper.make_graph(
        [helper.make_node("Add", [f"h{other}", "x"], [f"z{other}"])],
        "inner",
        [],
        [helper.make_tensor_value_info(f"z{other}", TensorProto.FLOAT, ["n"])],
    )
    second = helper.make_graph(
        [
            helper.make_node("Abs", ["x"], [f"h{other}"]),
            helper.make_node("If", ["c"], [f"y{other}"], then_branch=inner, else_branch=inner),
        ],
        "second",
        [],
        [helper.make_tensor_value_info(f"y{other}", TensorProto.FLOAT, ["n"])],
        value_info=[helper.make_tensor_value_info(f"h{other}", TensorProto.FLOAT, ["n"])],
    )
    if named_apart:
        second.node[1].attribute[1].g.CopyFrom(first)
        for node in second.node[1].attribute[1].g.node:
            node.input[:], node.output[:] = ([f"{name}_inner" if name != "x" else name for name in names]
                                             for names in (node.input, node.output))  # fmt: skip
        second.node[1].attribute[1].g.output[0].name = "y_inner"
    chosen = helper.make_node("If", ["c"], ["result"], then_branch=first, else_branch=second)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    result = helper.make_tensor_value_info("result", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph([chosen], "graph", [x, condition], [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_each_value_gets_a_name_of_its_own():
    before = build()
    after, former = with_unique_names(before)
    assert before == build()
    first, second = (attribute.g for attribute in sorted(after.graph.node[0].attribute, key=lambda one: -len(one.name)))
    names = [name for graph in (first, second) for node in graph.node for name in node.output]
    assert len(set(names)) == len(names)
    assert {former[name] for name in names} == {"h", "y"}
    onnx.checker.check_model(after, full_check=True)


def test_former_names_are_restored():
    after, former = with_unique_names(build())
    assert after != build()
    assert with_former_names(after, former) == build()


def test_unique_names_stay():
    model = build(named_apart=True)
    assert with_unique_names(model) == (model, {})
    assert with_former_names(model, {}) == build(named_apart=True)
