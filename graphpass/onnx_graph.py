"""The dialect-neutral view of an ONNX model."""

from __future__ import annotations

import functools
import heapq
import math
from typing import TYPE_CHECKING, Any

import numpy
import onnx
from onnx import numpy_helper

from graphpass.graph import Graph, Node, Value, positive_axis
from graphpass.model import Dimension

if TYPE_CHECKING:
    from graphpass.onnx_model import OnnxModel

__all__ = ["build"]

#: ONNX operators whose meaning OpenVINO calls by another name.
_OPENVINO_NAMES = {
    "And": "LogicalAnd",
    "Cast": "Convert",
    "Div": "Divide",
    "Expand": "Broadcast",
    "Mul": "Multiply",
    "Neg": "Negative",
    "Not": "LogicalNot",
    "Or": "LogicalOr",
    "Pow": "Power",
    "ScatterElements": "ScatterElementsUpdate",
    "ScatterND": "ScatterNDUpdate",
    "Shape": "ShapeOf",
    "Split": "VariadicSplit",
    "Sub": "Subtract",
    "Where": "Select",
}

#: Operators that hold their axes in an attribute in early opsets and in this input in later ones.
_AXES_INPUTS = {"Unsqueeze": 1, "Squeeze": 1, "Slice": 3}

#: Constants of up to this many elements may be shapes, axes or scales, which shape inference reads.
_SMALL = 64

_DEFAULT_AXIS = {"Gather": 0, "Softmax": -1, "LogSoftmax": -1, "VariadicSplit": 0, "ScatterElementsUpdate": 0}


class _Builder:
    def __init__(self, graph: onnx.GraphProto, folder: str) -> None:
        self.folder = folder
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {}
        known = [*graph.value_info, *graph.output, *graph.input]
        self.types = {info.name: info.type.tensor_type for info in known}

    def add(self, name: str, op: str, inputs: tuple[Value | None, ...], outputs: list[str], native: Any) -> None:
        index = len(self.nodes)
        made = tuple(self.value(index, port, output) for port, output in enumerate(outputs))
        for value in made:
            if value.name:
                self.values[value.name] = value
        self.nodes.append(Node(index, name, op, inputs, made, self.attributes(op, inputs, made, native), native))

    def value(self, node: int, port: int, name: str) -> Value:
        if name not in self.types:
            return Value(node, port, name, None, "dynamic")
        return Value(node, port, name, _shape(self.types[name]), _element_type(self.types[name].elem_type))

    def attributes(
        self, op: str, inputs: tuple[Value | None, ...], outputs: tuple[Value, ...], native: Any
    ) -> dict[str, Any]:
        if not isinstance(native, onnx.NodeProto):
            return {}
        given = {attribute.name: attribute for attribute in native.attribute}
        ranks = [value.rank for value in (*inputs[:1], *outputs[:1]) if value is not None and value.rank is not None]
        rank = None
        if ranks:
            rank = ranks[-1] if op == "Unsqueeze" and outputs and outputs[0].rank is not None else ranks[0]
        found: dict[str, Any] = {}
        if "axis" in given or op in _DEFAULT_AXIS:
            axis = given["axis"].i if "axis" in given else _DEFAULT_AXIS[op]
            found["axis"] = positive_axis(axis, rank)
        if op == "Transpose" and ("perm" in given or rank is not None):
            found["order"] = tuple(given["perm"].ints) if "perm" in given else tuple(reversed(range(rank or 0)))
        axes = given["axes"].ints if "axes" in given else self.axes_input(op, inputs)
        if axes is not None:
            found["axes"] = tuple(positive_axis(int(axis), rank) for axis in axes)
        if op == "MatMul":
            found |= {"transpose_a": False, "transpose_b": False}
        if op in {"GroupQueryAttention", "MultiHeadAttention", "Attention"}:
            found |= {name: onnx.helper.get_attribute_value(attribute) for name, attribute in given.items()}
        return found

    def axes_input(self, op: str, inputs: tuple[Value | None, ...]) -> list[int] | None:
        port = _AXES_INPUTS.get(op)
        if port is None or port >= len(inputs):
            return None
        value = inputs[port]
        if value is None or self.nodes[value.node].op != "Constant":
            return None
        return [int(axis) for axis in _read_constant(self.nodes[value.node], self.folder).reshape(-1)]


def build(model: OnnxModel) -> Graph:
    """A view of ``model``: its inputs, constants and nodes in topological order, and a ``Result`` for each output.

    A node with bodies (If, Loop, Scan) is one node that also reads what its bodies capture from outside.
    """
    folder = str(model.path.parent) if model.path is not None else ""
    builder = _Builder(_inferred(model.proto).graph, folder)
    graph = model.proto.graph
    for tensor in graph.initializer:
        builder.types.setdefault(
            tensor.name, onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims).tensor_type
        )
        builder.add(tensor.name, "Constant", (), [tensor.name], tensor)
    for info in graph.input:
        if info.name not in builder.values:
            builder.add(info.name, "Parameter", (), [info.name], info)
    for native in _in_order(graph.node, set(builder.values)):
        _add_node(builder, native)
    for info in graph.output:
        if info.name in builder.values:
            builder.add(info.name, "Result", (builder.values[info.name],), [], info)
    return Graph(tuple(builder.nodes), functools.partial(_read_constant, folder=folder))


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` without its weights and with the shapes that inference can tell.

    Operators of domains that onnx has no rules for, and what depends on them, stay without shapes.
    """
    return onnx.shape_inference.infer_shapes(_without_weights(proto), data_prop=True)


def _without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    light = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import, functions=proto.functions)
    light.graph.name = proto.graph.name
    light.graph.input.extend(proto.graph.input)
    light.graph.output.extend(proto.graph.output)
    light.graph.value_info.extend(proto.graph.value_info)
    # Inference goes through the nodes once, in the file's order.
    light.graph.node.extend(_in_order(proto.graph.node, set()))
    for tensor in proto.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL and math.prod(tensor.dims) <= _SMALL:
            light.graph.initializer.append(tensor)
        else:
            kind = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            light.graph.input.append(onnx.helper.make_value_info(tensor.name, kind))
    return light


def _add_node(builder: _Builder, native: onnx.NodeProto) -> None:
    name = native.name or (native.output[0] if native.output else native.op_type)
    tensor = _constant(native)
    if tensor is not None:
        kind = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims).tensor_type
        builder.types.setdefault(native.output[0], kind)
        builder.add(name, "Constant", (), [native.output[0]], tensor)
        return
    # Nothing can read a Constant of strings or a sparse one; it is an operator like others.
    op = "OpaqueConstant" if native.op_type == "Constant" else _OPENVINO_NAMES.get(native.op_type, native.op_type)
    inputs = tuple(builder.values.get(read) if read else None for read in native.input)
    captured = tuple(builder.values[read] for read in _captured(native) if read in builder.values)
    builder.add(name, op, inputs + captured, list(native.output), native)


def _constant(native: onnx.NodeProto) -> onnx.TensorProto | None:
    """What a Constant node holds; ``None`` for any other node, and for sparse tensors."""
    if native.op_type != "Constant" or native.domain not in {"", "ai.onnx"} or len(native.attribute) != 1:
        return None
    attribute = native.attribute[0]
    if attribute.name == "value":
        held: onnx.TensorProto = attribute.t
        return held
    types = {"value_int": "int64", "value_ints": "int64", "value_float": "float32", "value_floats": "float32"}
    if attribute.name not in types:
        return None
    value = numpy.array(onnx.helper.get_attribute_value(attribute), types[attribute.name])
    made: onnx.TensorProto = numpy_helper.from_array(value)
    return made


def _in_order(nodes: Any, available: set[str]) -> list[onnx.NodeProto]:
    """``nodes`` in a topological order that keeps the file's order where it is one already."""
    pending = list(nodes)
    produced = {output for node in pending for output in node.output if output}
    waiting: dict[str, list[int]] = {}
    missing: list[int] = []
    ordered: list[onnx.NodeProto] = []
    for index, node in enumerate(pending):
        needs = {name for name in (*node.input, *_captured(node)) if name in produced and name not in available}
        missing.append(len(needs))
        for name in needs:
            waiting.setdefault(name, []).append(index)
    ready = [index for index, count in enumerate(missing) if count == 0]
    heapq.heapify(ready)
    while ready:
        index = heapq.heappop(ready)
        ordered.append(pending[index])
        for name in pending[index].output:
            for reader in waiting.pop(name, ()):
                missing[reader] -= 1
                if missing[reader] == 0:
                    heapq.heappush(ready, reader)
    return ordered


def _captured(node: onnx.NodeProto) -> list[str]:
    """Names that the bodies of ``node`` read from outside themselves."""
    bodies = _bodies(node)
    defined: set[str] = set()
    read: dict[str, None] = {}
    while bodies:
        body = bodies.pop()
        defined.update(info.name for info in body.input)
        defined.update(tensor.name for tensor in body.initializer)
        for inner in body.node:
            defined.update(inner.output)
            read.update(dict.fromkeys(inner.input))
            bodies.extend(_bodies(inner))
        read.update(dict.fromkeys(info.name for info in body.output))
    return [name for name in read if name and name not in defined]


def _bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]


def _shape(tensor_type: onnx.TypeProto.Tensor) -> tuple[Dimension, ...] | None:
    if not tensor_type.HasField("shape"):
        return None
    return tuple(
        dimension.dim_value if dimension.HasField("dim_value") else (dimension.dim_param or None)
        for dimension in tensor_type.shape.dim
    )


def _element_type(code: int) -> str:
    from graphpass.onnx_model import element_type

    return element_type(code)


def _read_constant(node: Node, folder: str) -> numpy.ndarray:
    array: numpy.ndarray = numpy_helper.to_array(node.native, folder)
    return array
