"""`unroll-loops`: iterations one after another compute what Loop and Scan do."""

from __future__ import annotations

import numpy
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import graphpass
from graphpass.dialects.onnx.model import OnnxModel

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def port(name: str, kind: int, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: list[onnx.NodeProto], outputs: list[onnx.ValueInfoProto]) -> OnnxModel:
    constants = {
        "count": numpy.array(3),
        "yes": numpy.array(True),
        "half": numpy.array(0.5, numpy.float32),
        "many": numpy.array(65),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [port("start", F32, 2), port("rows", F32, 2, 3)],
        outputs,
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))


def loop(trips: str = "count", condition: str = "go", more: tuple[onnx.NodeProto, ...] = ()) -> OnnxModel:
    """A loop that halves its state, adds its number and stacks the results; the half is of the graph around it."""
    body = helper.make_graph(
        [
            helper.make_node("Cast", ["number"], ["step"], to=F32),
            helper.make_node("Mul", ["state", "half"], ["halved"]),
            helper.make_node("Add", ["halved", "step"], ["next"]),
            helper.make_node("Identity", ["next"], ["stacked"]),
            *more,
            helper.make_node("Identity", [condition], ["still"]),
        ],
        "body",
        [port("number", I64), port("go", BOOL), port("state", F32, 2)],
        [port("still", BOOL), port("next", F32, 2), port("stacked", F32, 2)],
    )
    node = helper.make_node("Loop", [trips, "yes", "start"], ["last", "all"], name="loop", body=body)
    return model([node], [port("last", F32, 2), port("all", F32, 65 if trips == "many" else 3, 2)])


def scan(backward: int) -> OnnxModel:
    """A scan over columns that adds them up."""
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "column"], ["next"]), helper.make_node("Neg", ["next"], ["stacked"])],
        "body",
        [port("state", F32, 2), port("column", F32, 2)],
        [port("next", F32, 2), port("stacked", F32, 2)],
    )
    node = helper.make_node(
        "Scan",
        ["start", "rows"],
        ["last", "all"],
        name="scan",
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[backward],
        scan_output_axes=[1],
        scan_output_directions=[backward],
    )
    return model([node], [port("last", F32, 2), port("all", F32, 2, 3)])


def unrolled(source: OnnxModel) -> OnnxModel:
    result = graphpass.PassManager(graphpass.parse("unroll-loops")).run(source).model
    assert isinstance(result, OnnxModel)
    return result


def outputs(source: OnnxModel) -> list[numpy.ndarray]:
    feeds = {"start": numpy.array([4, 8], numpy.float32), "rows": numpy.arange(6, dtype=numpy.float32).reshape(2, 3)}
    session = onnxruntime.InferenceSession(source.proto.SerializeToString())
    found: list[numpy.ndarray] = session.run(None, {each.name: feeds[each.name] for each in session.get_inputs()})
    return found


@pytest.mark.parametrize("source", [loop(), loop(condition="yes"), scan(0), scan(1)])
def test_iterations_compute_the_same(source: OnnxModel) -> None:
    result = unrolled(source)
    onnx.checker.check_model(result.proto, full_check=True)
    assert not any(result.graph.of_op("Loop", "Scan"))
    for found, expected in zip(outputs(result), outputs(source), strict=True):
        numpy.testing.assert_array_equal(found, expected)
    assert not graphpass.PassManager(graphpass.parse("unroll-loops")).run(result).records[-1].result.changed


ENDS = (
    helper.make_node("ReduceMax", ["next"], ["largest"], keepdims=0),
    helper.make_node("Greater", ["largest", "half"], ["goes"]),
)
NESTED = (
    helper.make_node(
        "If",
        ["go"],
        ["chosen"],
        then_branch=helper.make_graph([helper.make_node("Identity", ["next"], ["a"])], "a", [], [port("a", F32, 2)]),
        else_branch=helper.make_graph([helper.make_node("Identity", ["state"], ["b"])], "b", [], [port("b", F32, 2)]),
    ),
)


@pytest.mark.parametrize("source", [loop("many"), loop(condition="goes", more=ENDS), loop(more=NESTED)])
def test_long_conditional_or_branching_loops_stay(source: OnnxModel) -> None:
    assert any(unrolled(source).graph.of_op("Loop"))
