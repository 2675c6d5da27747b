"""Give the values of bodies unique names for shape inference."""

from __future__ import annotations

from collections import ChainMap
from typing import TYPE_CHECKING

import onnx

from graphpass.dialects.onnx.tensors import graphs

if TYPE_CHECKING:
    from collections.abc import Mapping


def with_unique_names(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Rename values of bodies with equal names, which merged decoders have.

    onnx propagates data by name: it takes the data of such a value in one branch for that in the other.

    Args:
        proto: The model, which is not modified.

    Returns:
        The model, a copy if values are renamed, and the former names of renamed values.
    """
    every = [name for graph in graphs(proto) if isinstance(graph, onnx.GraphProto) for name in _made(graph)]
    if len(every) == len(set(every)):
        return proto, {}
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    former: dict[str, str] = {}
    pending: list[tuple[onnx.GraphProto, ChainMap[str, str]]] = [(copy.graph, ChainMap())]
    while pending:
        graph, outer = pending.pop()
        own = {tensor.name: tensor.name for tensor in (*graph.initializer, *graph.input)}
        if graph is not copy.graph:
            for name in _made(graph):
                own[name] = f"{name}/unique_{len(former)}"
                former[own[name]] = name
        names = outer.new_child(own)
        _rename(graph, names)
        attributes = (attribute for node in graph.node for attribute in node.attribute)
        pending += [(attribute.g, names) for attribute in attributes if attribute.HasField("g")]
    return copy, former


def with_former_names(proto: onnx.ModelProto, former: Mapping[str, str]) -> onnx.ModelProto:
    """Reverse `with_unique_names` in place.

    Args:
        proto: The model with unique names, and further values and shapes.
        former: The former names.

    Returns:
        The model.
    """
    for graph in graphs(proto):
        if former and isinstance(graph, onnx.GraphProto):
            _rename(graph, former)
    return proto


def _made(graph: onnx.GraphProto) -> list[str]:
    return [name for node in graph.node for name in node.output if name]


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for info in (*graph.value_info, *graph.output):
        info.name = names.get(info.name, info.name)
