"""Build the dialect-neutral view of an ONNX model."""

from __future__ import annotations

import functools
from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy
import onnx
from onnx import numpy_helper

from graphpass.dialects.onnx.neutral_attributes import AttributeTranslation
from graphpass.dialects.onnx.operators import NEUTRAL_NAMES
from graphpass.dialects.onnx.shapes import outputs_of
from graphpass.dialects.onnx.spelling import spelled
from graphpass.dialects.onnx.tensors import element_type, embedded, mapped, shape_of
from graphpass.dialects.onnx.walk import ONNX_DOMAINS, bodies, captured, in_order, inferred, opset_of
from graphpass.errors import ReadError, UnsupportedError
from graphpass.ir.graph import Graph, Node, Value, positive_axis
from graphpass.progress import counting

#: Operators of other domains that share their name with a different ONNX operator; their name includes the domain.
_NAMESAKES = frozenset({("com.microsoft", "Attention")})

_AGAIN = "export the model again"

_Types: TypeAlias = "ChainMap[str, onnx.TypeProto.Tensor]"


class _Scope:
    """Values and types by name in a graph, outer graphs included."""

    def __init__(self, graph: onnx.GraphProto, outer: _Scope | None = None) -> None:
        known = [*graph.value_info, *graph.output, *graph.input]
        own = {info.name: info.type.tensor_type for info in known}
        self.values: ChainMap[str, Value] = outer.values.new_child() if outer is not None else ChainMap()
        self.types: _Types = outer.types.new_child(own) if outer is not None else ChainMap(own)
        self.bodies = {outputs_of(node): bodies(node) for node in graph.node if node.op_type in _INLINED}


class _Builder:
    def __init__(self, scope: _Scope, model_file: Path | None, opset: int) -> None:
        self.model_file = model_file
        self.nodes: list[Node] = []
        self.scope = scope
        self.translation = AttributeTranslation(opset, model_file, self.integers)

    @property
    def values(self) -> ChainMap[str, Value]:
        return self.scope.values

    @property
    def types(self) -> _Types:
        return self.scope.types

    def add(
        self,
        name: str,
        op: str,
        inputs: tuple[Value | None, ...],
        outputs: list[str],
        native: Any,
        attributes: dict[str, Any] | None = None,
    ) -> Node:
        index = len(self.nodes)
        made = tuple(self.value(index, port, output) for port, output in enumerate(outputs))
        for value in made:
            if value.name:
                self.values[value.name] = value
        stated = self.attributes(op, inputs, made, native) if attributes is None else attributes
        self.nodes.append(Node(index, name, op, inputs, made, stated, native))
        return self.nodes[-1]

    def read(self, name: str) -> Value | None:
        return self.values.get(name) if name else None

    def value(self, node: int, port: int, name: str) -> Value:
        if name not in self.types:
            return Value(node, port, name, None, "dynamic")
        return Value(node, port, name, shape_of(self.types[name]), element_type(self.types[name].elem_type))

    def attributes(
        self, op: str, inputs: tuple[Value | None, ...], outputs: tuple[Value, ...], native: Any
    ) -> dict[str, Any]:
        return self.translation.neutral(op, native, inputs, outputs) if isinstance(native, onnx.NodeProto) else {}

    def integers(self, value: Value) -> list[int] | None:
        node = self.nodes[value.node]
        constant = _read_constant(node, self.model_file) if node.op == "Constant" else None
        return None if constant is None else [int(number) for number in constant.reshape(-1)]


def build(proto: onnx.ModelProto, path: Path | None, *, inline: bool = False) -> Graph:
    """Build a view: inputs, constants, sorted nodes, and a ``Result`` for each output.

    Args:
        proto: The model.
        path: The ``.onnx`` file, whose folder contains the data files; ``None`` for a model in memory.
        inline: Whether to inline bodies as `graphpass.ir.bodies` describes; otherwise a node with bodies also reads the
            values that they capture.

    Returns:
        The view, with nodes in topological order.

    Raises:
        UnsupportedError: GP310, a node reads a tensor, or the model returns one, that is not computed.
    """
    scope, opset = _Scope(inferred(proto).graph), opset_of(proto)
    builder = _Builder(scope, path, opset)
    graph = proto.graph
    _add_constants(builder, graph)
    for info in graph.input:
        if info.name not in builder.values:
            builder.add(info.name, "Parameter", (), [info.name], info)
    with counting("building the graph", in_order(graph.node, set(builder.values)), "nodes") as nodes:
        _add_nodes(builder, _Frame(scope, iter(nodes)), inline=inline)
    builder.scope = scope
    for info in graph.output:
        if info.name not in builder.values:
            raise UnsupportedError("GP310", f"the model is not valid: no node computes its output {info.name}", _AGAIN)
        builder.add(info.name, "Result", (builder.values[info.name],), [], info)
    spell = functools.partial(spelled, opset=opset)
    return Graph(tuple(builder.nodes), functools.partial(_read_constant, model_file=path), spell)


def _add_constants(builder: _Builder, graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        kind = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims).tensor_type
        builder.types[tensor.name] = kind
        builder.add(tensor.name, "Constant", (), [tensor.name], tensor)


_BRANCHES = ("then_branch", "else_branch")

#: Operators whose bodies can be inlined.
_INLINED = frozenset({"If", "Loop", "Scan"})


@dataclass
class _Frame:
    scope: _Scope
    nodes: Iterator[onnx.NodeProto] = field(default_factory=lambda: iter(()))
    leave: Callable[[], None] = lambda: None


def _frame(graph: onnx.GraphProto, scope: _Scope, leave: Callable[[], None] = lambda: None) -> _Frame:
    return _Frame(scope, iter(in_order(graph.node, set(scope.values.maps[0]))), leave)


def _add_nodes(builder: _Builder, outermost: _Frame, *, inline: bool) -> None:
    stack = [outermost]
    while stack:
        frame = stack[-1]
        builder.scope = frame.scope
        native = next(frame.nodes, None)
        if native is None:
            stack.pop()
            frame.leave()
        elif inline and _can_be_inlined(native):
            stack += _branches(builder, native) if native.op_type == "If" else _loop(builder, native)
        else:
            _add_node(builder, native)


def _can_be_inlined(native: onnx.NodeProto) -> bool:
    """Return whether bodies of ``native`` can be inlined; opset 8's Scan has a batch axis."""
    if native.op_type not in _INLINED or native.domain not in ONNX_DOMAINS:
        return False
    return native.op_type != "Scan" or len(native.input) == len(bodies(native)["body"].input)


def _branches(builder: _Builder, native: onnx.NodeProto) -> list[_Frame]:
    outer, inner = builder.scope, bodies(native)
    scopes = {name: _Scope(outer.bodies[tuple(native.output)][name], outer) for name in _BRANCHES}
    frames = [_Frame(outer, leave=functools.partial(_join, builder, native, tuple(scopes.values())))]
    for name, scope in scopes.items():
        builder.scope = scope
        _add_constants(builder, inner[name])
        frames.append(_frame(inner[name], scope))
    return frames


def _join(builder: _Builder, native: onnx.NodeProto, branches: tuple[_Scope, ...]) -> None:
    inner = bodies(native)
    for port, output in enumerate(native.output):
        values = (
            scope.values.get(inner[name].output[port].name) for name, scope in zip(_BRANCHES, branches, strict=True)
        )
        inputs = (builder.values.get(native.input[0]), *values)
        builder.add(native.name or output, "If", inputs, [output], native, {"joins": True})


def _loop(builder: _Builder, native: onnx.NodeProto) -> list[_Frame]:
    """Add a node for each input of the body.

    Returns:
        A frame that ends the loop, and one of the body's nodes, which is processed first.
    """
    outer, body = builder.scope, bodies(native)["body"]
    inside = _Scope(outer.bodies[tuple(native.output)]["body"], outer)
    sources = [builder.read(name) for name in native.input]
    stated = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in native.attribute}
    name, loop = native.name or next(iter(native.output)), {"loop": native.op_type}
    builder.scope = inside
    _add_constants(builder, body)
    inputs = list(body.input)
    number: dict[str, Any] = {}
    if native.op_type == "Loop":
        number |= loop | {"count": sources[0]}
        builder.add(name, "Iteration", (), [inputs.pop(0).name], native, number)
        condition = builder.add(name, "Carried", (sources[1],), [inputs.pop(0).name], native, loop)
        number["conditions"] = (sources[1], *condition.outputs)
        sources = sources[2:]
    count = len(inputs) - stated.get("num_scan_inputs", 0)
    carried = [
        builder.add(name, "Carried", (source,), [info.name], native, loop)
        for source, info in zip(sources[:count], inputs[:count], strict=True)
    ]
    axes, backward = (stated.get(f"scan_input_{name}", [0] * (len(inputs) - count)) for name in ("axes", "directions"))
    for source, info, axis, is_backward in zip(sources[count:], inputs[count:], axes, backward, strict=True):
        rank = source.rank if source is not None else None
        attributes = loop | {"axis": positive_axis(axis, rank), "keeps_axis": False, "in_order": not is_backward}
        builder.add(name, "Sliced", (source,), [info.name], native, attributes)
    starts = tuple(node.outputs[0] for node in carried)
    ending = functools.partial(_end_loop, builder, native, inside, starts, number)
    return [_Frame(outer, leave=ending), _frame(body, inside)]


def _end_loop(
    builder: _Builder, native: onnx.NodeProto, inside: _Scope, starts: tuple[Value, ...], number: dict[str, Any]
) -> None:
    """Add a node for each output of a Loop or Scan."""
    results = [info.name for info in bodies(native)["body"].output]
    if native.op_type == "Loop":
        number["conditions"] += (inside.values.get(results.pop(0)),)
    stated = {attribute.name: list(attribute.ints) for attribute in native.attribute}
    axes, backward = stated.get("scan_output_axes", []), stated.get("scan_output_directions", [])
    name, loop = native.name or next(iter(native.output)), {"loop": native.op_type}
    for port, output in enumerate(native.output):
        result, left = inside.values.get(results[port]), loop | {"port": port}
        if port < len(starts):
            builder.add(name, "Final", (result, starts[port]), [output], native, left)
            continue
        axis = axes[port - len(starts)] if axes else 0
        inner = result.rank if result is not None else None
        rank = inner + 1 if inner is not None else None
        attributes = left | {"axis": positive_axis(axis, rank), "keeps_axis": False, "in_order": not any(backward)}
        builder.add(name, "Stacked", (result,), [output], native, attributes)


def _add_node(builder: _Builder, native: onnx.NodeProto) -> None:
    name = native.name or (native.output[0] if native.output else native.op_type)
    tensor = _constant(native)
    if tensor is not None:
        kind = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims).tensor_type
        builder.types[native.output[0]] = kind
        builder.add(name, "Constant", (), [native.output[0]], tensor)
        return
    # A Constant of strings or a sparse one cannot be read, so it is an ordinary operator.
    op = "OpaqueConstant" if native.op_type == "Constant" else NEUTRAL_NAMES.get(native.op_type, native.op_type)
    if (native.domain, native.op_type) in _NAMESAKES:
        op = f"{native.domain}.{native.op_type}"
    if missing := [read for read in native.input if read and read not in builder.values]:
        reason = f"{native.op_type} {name} reads {missing[0]}, which is not an input, an initializer or a result"
        raise UnsupportedError("GP310", f"the model is not valid: {reason}", _AGAIN)
    inputs = tuple(builder.read(read) for read in native.input)
    from_outside = tuple(builder.values[read] for read in captured(native) if read in builder.values)
    builder.add(name, op, inputs + from_outside, list(native.output), native)


def _constant(native: onnx.NodeProto) -> onnx.TensorProto | None:
    if native.op_type != "Constant" or native.domain not in ONNX_DOMAINS or len(native.attribute) != 1:
        return None
    attribute = native.attribute[0]
    if attribute.name == "value":
        tensor: onnx.TensorProto = attribute.t
        return tensor if attribute.HasField("t") else None
    types = {"value_int": "int64", "value_ints": "int64", "value_float": "float32", "value_floats": "float32"}
    if attribute.name not in types:
        return None
    value = numpy.array(onnx.helper.get_attribute_value(attribute), types[attribute.name])
    made: onnx.TensorProto = numpy_helper.from_array(value)
    return made


#: Types of 4 bits, whose elements are returned in 8 bits.
_WIDENED: dict[int, str] = {onnx.TensorProto.INT4: "int8", onnx.TensorProto.UINT4: "uint8"}


def _read_constant(node: Node, model_file: Path | None) -> numpy.ndarray | None:
    """Return the elements of a Constant; ``None`` if the installed ONNX lacks their type.

    Raises:
        FileNotFoundError: Its external data cannot be read.
    """
    try:
        if (elements := mapped(node.native, model_file)) is not None:
            return elements
        tensor = embedded(node.native, model_file)
    except ReadError as error:
        raise FileNotFoundError(str(error)) from error
    if tensor.data_type == onnx.TensorProto.STRING:  # any bytes
        texts = [text.decode("utf-8", "backslashreplace") for text in tensor.string_data]
        return numpy.array(texts, object).reshape(tuple(tensor.dims))
    if tensor.data_type not in onnx.helper.get_all_tensor_dtypes():
        return None
    array: numpy.ndarray = numpy_helper.to_array(tensor)
    wide = _WIDENED.get(tensor.data_type)
    return array if wide is None else array.astype(wide)
