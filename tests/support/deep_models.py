"""Deep models made of real layers: a fixture's last layer, repeated."""

from __future__ import annotations

import re

import onnx

from graphpass.dialects.onnx.model import OnnxModel


def deepened(model: OnnxModel, layers: int, weights: str | None = None) -> OnnxModel:
    """``model`` with its last layer repeated until it has ``layers``; all copies share that layer's weights.

    Args:
        model: An optimum export whose nodes are called ``/model/layers.N/...``.
        layers: How many layers to have, not fewer than there are.
        weights: Name of an external data file that all large weights are said to lie in; it need not exist.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    graph = proto.graph
    last = max(int(number) for node in graph.node for number in re.findall(r"^/model/layers\.(\d+)/", node.name))
    mine = [node for node in graph.node if node.name.startswith(f"/model/layers.{last}/")]
    produced = {name for node in mine for name in node.output}
    ports = [port for port in (*graph.input, *graph.output) if f".{last}." in port.name]
    position = list(graph.node).index(mine[-1]) + 1
    (exit_name,) = {name for node in graph.node[position:] for name in node.input if name in produced}
    entrance = _renamed(exit_name, last, last - 1)
    rest = list(graph.node[position:])
    del graph.node[position:]
    arrival = exit_name
    for layer in range(last + 1, layers):
        renamed = {name: _renamed(name, last, layer) for name in produced | {port.name for port in ports}}
        renamed[entrance] = arrival
        for node in mine:
            copy = graph.node.add()
            copy.CopyFrom(node)
            copy.name = _renamed(node.name, last, layer)
            copy.input[:] = [renamed.get(name, name) for name in node.input]
            copy.output[:] = [renamed.get(name, name) for name in node.output]
        for port in ports:
            holder = graph.input if port in graph.input else graph.output
            holder.add().CopyFrom(port)
            holder[-1].name = renamed[port.name]
        arrival = renamed[exit_name]
    for node in rest:
        node.input[:] = [arrival if name == exit_name else name for name in node.input]
    graph.node.extend(rest)
    if weights is not None:
        _put_outside(graph, weights)
    return OnnxModel(proto)


def _renamed(name: str, last: int, layer: int) -> str:
    return re.sub(rf"(?<=\.){last}(?=[./])", str(layer), name)


def _put_outside(graph: onnx.GraphProto, location: str) -> None:
    offset = 0
    for tensor in graph.initializer:
        size = len(tensor.raw_data)
        if size > 1024:
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            entries = {"location": location, "offset": str(offset), "length": str(size)}
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)
            offset += size
