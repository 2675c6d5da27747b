"""Traverse ONNX graphs: sorted nodes, bodies, and inferred shapes."""

from __future__ import annotations

import heapq
from collections import ChainMap
from collections.abc import Iterator
from typing import Any

import onnx

from graphpass.dialects.onnx.shapes import shape_proxies
from graphpass.dialects.onnx.tensors import graphs, is_small_inline
from graphpass.dialects.onnx.unique_names import with_former_names, with_unique_names
from graphpass.errors import UnsupportedError

#: Names of the domain of the default ONNX operator set.
ONNX_DOMAINS = frozenset({"", "ai.onnx"})

#: Largest number of elements of constants for shape inference, which may be shapes, axes or scales.
_SMALL = 64

#: Largest size of a rank-1 tensor for data propagation: onnx stores each element, known or not.
_LONGEST = 2**20


def opset_of(proto: onnx.ModelProto) -> int:
    """Return the version of the default operator set that ``proto`` imports; 0 if none."""
    return next((entry.version for entry in proto.opset_import if entry.domain in ONNX_DOMAINS), 0)


def inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return ``proto`` without weights and with inferred shapes.

    Operators without inference rules in onnx have proxies or no shapes. Nodes downstream of missing shapes have none
    either.

    Raises:
        UnsupportedError: GP310, the model is inconsistent; the message includes onnx's error.
    """
    known = _inferred(_without_weights(proto))
    # Inference leaves carried tensors of a Loop without shapes. Each round determines ranks for one level of bodies.
    while _set_carried_ranks(known.graph) or _set_result_shapes(known.graph):
        known = _inferred(known)
    return known


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    unique, former = with_unique_names(proto)
    try:
        known = onnx.shape_inference.infer_shapes(unique)
        if not any(_is_long(info) for graph in graphs(known) for info in _infos(graph)):
            known = onnx.shape_inference.infer_shapes(unique, data_prop=True)
        return with_former_names(known, former)
    except (onnx.shape_inference.InferenceError, RuntimeError, TypeError, ValueError, MemoryError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UnsupportedError("GP310", f"the model is not valid ONNX, shape inference fails: {reason}") from error


def _infos(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.value_info
    if isinstance(graph, onnx.GraphProto):
        yield from (*graph.input, *graph.output)


def _is_long(info: onnx.ValueInfoProto) -> bool:
    dimensions = info.type.tensor_type.shape.dim
    return len(dimensions) == 1 and dimensions[0].dim_value > _LONGEST


def _without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    light = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import, functions=proto.functions)
    light.graph.name = proto.graph.name
    light.graph.input.extend(proto.graph.input)
    light.graph.output.extend(proto.graph.output)
    light.graph.value_info.extend(proto.graph.value_info)
    # Inference visits the nodes once, in the file's order.
    opset = opset_of(proto)
    ranks = {info.name: len(info.type.tensor_type.shape.dim) for info in proto.graph.input}
    light.graph.node.extend(shape_proxies(in_order(proto.graph.node, set()), opset, ranks))
    for tensor in proto.graph.initializer:
        if is_small_inline(tensor, _SMALL):
            light.graph.initializer.append(tensor)
        else:
            kind = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            light.graph.input.append(onnx.helper.make_value_info(tensor.name, kind))
    _copy_constants(light.graph)
    return light


def _copy_constants(graph: onnx.GraphProto) -> None:
    """Copy small constants into bodies that read them, where inference requires them."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and [attribute.name for attribute in node.attribute] == ["value"]:
            tensor = onnx.TensorProto()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
            constants[tensor.name] = tensor
    pending = [body for node in graph.node for body in bodies(node).values()]
    while pending:
        body = pending.pop()
        read = {name for node in body.node for name in node.input} & set(constants)
        body.initializer.extend(constants[name] for name in sorted(read))
        pending += [inner for node in body.node for inner in bodies(node).values()]


def _set_carried_ranks(graph: onnx.GraphProto) -> bool:
    """Set the rank of carried tensors to their initial value's.

    Returns:
        Whether any was unknown before.
    """
    changed = False
    pending: list[tuple[onnx.GraphProto, ChainMap[str, int]]] = [(graph, ChainMap())]
    while pending:
        graph, outer = pending.pop()
        tensors = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
        infos = (*graph.value_info, *graph.output, *graph.input)
        tensors |= {
            info.name: len(kind.shape.dim) for info in infos if (kind := info.type.tensor_type).HasField("shape")
        }
        ranks = outer.new_child(tensors)
        for node in graph.node:
            pending += [(body, ranks) for body in bodies(node).values()]
            if node.op_type != "Loop":
                continue
            for info, source in zip(bodies(node)["body"].input[2:], node.input[2:], strict=True):
                kind = info.type.tensor_type
                if not kind.HasField("shape") and source in ranks:
                    kind.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in range(ranks[source]))
                    kind.shape.SetInParent()
                    changed = True
    return changed


def _set_result_shapes(graph: onnx.GraphProto) -> bool:
    """Set ranks of carried results, and sizes that iterations keep.

    Returns:
        Whether any was unknown before.
    """
    changed = False
    infos = {info.name: info.type.tensor_type for info in (*graph.value_info, *graph.output, *graph.input)}
    for node in graph.node:
        if node.op_type != "Loop":
            continue
        for name, source, info in zip(node.output, node.input[2:], bodies(node)["body"].output[1:], strict=False):
            start, result = infos.get(source), info.type.tensor_type
            if not name or start is None or not start.HasField("shape") or not result.HasField("shape"):
                continue
            kind = infos.get(name)
            declared = start if kind is None or not kind.HasField("shape") else kind
            if (
                len({len(tensor.shape.dim) for tensor in (start, result, declared)}) > 1
            ):  # iterations may change the rank
                continue
            sizes = [left if left == right else 0 for left, right in zip(_sizes(start), _sizes(result), strict=True)]
            if kind is None:
                kind = graph.value_info.add(name=name).type.tensor_type
                kind.elem_type = result.elem_type
            if not kind.HasField("shape"):
                kind.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in sizes)
                kind.shape.SetInParent()
                changed = True
            for dimension, size in zip(kind.shape.dim, sizes, strict=True):
                if size and not dimension.dim_value:
                    dimension.dim_value = size
                    changed = True
    return changed


def _sizes(kind: onnx.TypeProto.Tensor) -> list[int]:
    return [dimension.dim_value for dimension in kind.shape.dim]


def in_order(nodes: Any, available: set[str]) -> list[onnx.NodeProto]:
    """Sort ``nodes`` topologically; the file's order is kept if it is topological.

    Args:
        nodes: All nodes of one graph.
        available: Names that are defined before the first node, such as inputs and initializers.

    Returns:
        The sorted nodes, without nodes on cycles or downstream of them.
    """
    pending = list(nodes)
    produced = {output for node in pending for output in node.output if output}
    waiting: dict[str, list[int]] = {}
    missing: list[int] = []
    ordered: list[onnx.NodeProto] = []
    for index, node in enumerate(pending):
        needs = {name for name in (*node.input, *captured(node)) if name in produced and name not in available}
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


def captured(node: onnx.NodeProto) -> list[str]:
    """Return the names that the bodies of ``node`` capture from outer graphs."""
    pending = list(bodies(node).values())
    if not pending:
        return []
    defined: set[str] = set()
    read: dict[str, None] = {}
    while pending:
        body = pending.pop()
        defined.update(info.name for info in body.input)
        defined.update(tensor.name for tensor in body.initializer)
        for inner in body.node:
            defined.update(inner.output)
            read.update(dict.fromkeys(inner.input))
            pending.extend(bodies(inner).values())
        read.update(dict.fromkeys(info.name for info in body.output))
    return [name for name in read if name and name not in defined]


def bodies(node: onnx.NodeProto) -> dict[str, onnx.GraphProto]:
    """Return the bodies of ``node`` by the name of their attribute."""
    return {attribute.name: attribute.g for attribute in node.attribute if attribute.type == attribute.GRAPH}
