"""Edits of a graphsurgeon graph as they are written into the model."""

import ml_dtypes
import numpy
import onnx_graphsurgeon as gs
import pytest
from dialects.onnx.every_field import content, initializer, model_with_every_field
from onnx import helper, numpy_helper

from graphpass import UnsupportedError
from graphpass.dialects.onnx.model import OnnxModel


def test_an_edit_changes_nothing_else():
    proto = model_with_every_field()
    wanted = model_with_every_field()
    model = OnnxModel(proto)
    with model.graphsurgeon() as graph:
        add = next(node for node in graph.nodes if node.name == "add")
        add.op = "Sub"
    wanted.graph.node[1].op_type = "Sub"
    assert content(proto) == content(wanted)
    assert model.edited


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("fnuz", numpy.array([3, 4], dtype=ml_dtypes.float8_e4m3fnuz)),
        ("int4", numpy.array([7, -8, 1], dtype=ml_dtypes.int4)),
        ("strings", numpy.array(["c", "d", "e"], dtype=object)),
        ("w", numpy.arange(4, 8, dtype=numpy.float32)),
    ],
)
def test_changed_constants_keep_their_type(name, values):
    proto = model_with_every_field()
    before = initializer(proto, name).data_type
    model = OnnxModel(proto)
    with model.graphsurgeon() as graph:
        node = gs.Node("Identity", "reads", inputs=[_constant(graph, proto, name)], outputs=[gs.Variable("read")])
        graph.nodes.append(node)
        node.inputs[0].values = values
    held = initializer(proto, name)
    assert held.data_type == before
    assert numpy_helper.to_array(held).tolist() == values.tolist() or name == "strings"
    if name == "strings":
        assert [one.decode() for one in held.string_data] == ["c", "d", "e"]
    assert initializer(proto, "w").doc_string == "weights"


def test_bodies_are_edited_and_share_the_weights_around_them():
    proto = model_with_every_field()
    with OnnxModel(proto).graphsurgeon() as graph:
        branch = next(node for node in graph.nodes if node.op == "If").attrs["then_branch"]
        add = branch.nodes[1]
        assert add.inputs[1] is graph.tensors()["w"]
        add.inputs[1] = gs.Constant("new", numpy.full(4, 9, numpy.float32))
    body = next(one.g for one in proto.graph.node[2].attribute if one.name == "then_branch")
    assert [tensor.name for tensor in body.initializer] == ["then_own", "new"]
    assert "new" not in {tensor.name for tensor in proto.graph.initializer}
    assert list(body.node[1].input) == ["then_product", "new"]
    assert body.metadata_props[0].value == "then"


def test_an_edit_removes_only_newly_unused_weights():
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("Add", ["x", "w"], ["y"], "add")],
            "g",
            [helper.make_tensor_value_info("x", 1, [2])],
            [helper.make_tensor_value_info("y", 1, [2])],
            [numpy_helper.from_array(numpy.ones(2, numpy.float32), name) for name in ("w", "unused")],
        )
    )
    with OnnxModel(proto).graphsurgeon() as graph:
        graph.nodes[0].inputs[1] = graph.inputs[0]
    assert [tensor.name for tensor in proto.graph.initializer] == ["unused"]


def test_inputs_outputs_functions_and_domains_follow():
    proto = model_with_every_field()
    with OnnxModel(proto).graphsurgeon() as graph:
        extra = gs.Variable("extra", numpy.int64, ["batch", None, 3])
        graph.inputs.append(extra)
        graph.outputs.insert(0, gs.Variable("moved", numpy.int64, None))
        graph.nodes.append(gs.Node("Moves", "moves", {"by": []}, [extra], [graph.outputs[0]], "other.domain"))
        graph.functions[0].nodes[0].op = "Sub"
        graph.inputs[1].shape = ["rows", 4]
    assert [info.name for info in proto.graph.input] == ["flag", "x", "w", "extra"]
    assert proto.graph.input[1].type.tensor_type.shape.dim[0].dim_param == "rows"
    assert proto.graph.input[1].type.tensor_type.shape.dim[0].denotation == "DATA_BATCH"
    assert proto.graph.input[1].doc_string == "an input"
    assert [info.name for info in proto.graph.output] == ["moved", "y"]
    assert proto.functions[0].node[0].op_type == "Sub"
    assert proto.functions[0].node[0].doc_string == "inside"
    assert {entry.domain: entry.version for entry in proto.opset_import}["other.domain"] == 1


def test_a_long_chain_in_reverse_order_is_edited_without_recursion():
    nodes = [helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"], f"n{i}") for i in range(20_000)]
    ports = [[helper.make_tensor_value_info(name, 1, [1])] for name in ("v0", "v20000")]
    model = OnnxModel(helper.make_model(helper.make_graph(nodes[::-1], "chain", *ports)))
    with model.graphsurgeon() as graph:
        graph.toposort()
        assert [node.name for node in graph.nodes[:2]] == ["n0", "n1"]
        graph.nodes.reverse()
        last = next(node for node in graph.nodes if node.name == "n19999")
        last.op = "Abs"
    assert [node.op_type for node in model.proto.graph.node] == ["Neg"] * 19_999 + ["Abs"]
    assert [node.input[0] for node in model.proto.graph.node] == [f"v{i}" for i in range(20_000)]


def test_a_cycle_is_refused():
    ports = [[helper.make_tensor_value_info(name, 1, [1])] for name in ("a", "c")]
    nodes = [helper.make_node("Neg", ["a"], ["b"], "first"), helper.make_node("Neg", ["b"], ["c"], "second")]
    model = OnnxModel(helper.make_model(helper.make_graph(nodes, "g", *ports)))
    with pytest.raises(UnsupportedError, match=r"GP344.*cycle"), model.graphsurgeon() as graph:
        graph.nodes[0].inputs[0] = graph.nodes[1].outputs[0]


def _constant(graph, proto, name):
    found = graph.tensors().get(name)
    if found is None:
        found = gs.Constant(name, numpy.zeros(1, numpy.float32))
        tensor = initializer(proto, name)
        proto.graph.initializer.remove(tensor)
        found = gs.Constant(name, numpy.asarray(numpy_helper.to_array(tensor)))
    return found
