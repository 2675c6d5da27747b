"""Models of one Loop or Scan."""

from __future__ import annotations

import numpy
import onnx
from onnx import TensorProto, helper

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
