"""Copy some nodes of an ONNX graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from graphpass.dialects.onnx.tensors import element_code, merge
from graphpass.dialects.onnx.walk import captured

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphpass.ir.graph import Graph, Node, Value


def excerpt_of(proto: onnx.ModelProto, nodes: Iterable[Node]) -> onnx.ModelProto:
    """Return a copy of ``nodes`` and their initializers, with inputs for values from other nodes.

    Args:
        proto: The model.
        nodes: Nodes of its view that are in no body.
    """
    wanted = list(nodes)
    made = {value.name for node in wanted for value in node.outputs}
    results = {node.name for node in wanted if node.op == "Result"}
    whole = proto.graph
    copy = onnx.ModelProto()
    merge(proto, copy, without="graph")
    copy.graph.name = whole.name
    copy.graph.node.extend(node for node in whole.node if not made.isdisjoint(filter(None, node.output)))
    read = {name for node in copy.graph.node for name in (*node.input, *captured(node)) if name}
    copy.graph.initializer.extend(tensor for tensor in whole.initializer if tensor.name in read)
    copy.graph.sparse_initializer.extend(
        initializer for initializer in whole.sparse_initializer if initializer.values.name in read
    )
    copy.graph.input.extend(info for info in whole.input if info.name in made | read)
    copy.graph.output.extend(info for info in whole.output if info.name in results)
    known = _known(copy.graph)
    copy.graph.value_info.extend(info for info in whole.value_info if info.name in known)
    missing = [value for node in wanted for value in node.sources if value.name in read - known]
    copy.graph.input.extend(map(_declared, {value.name: value for value in missing}.values()))
    return copy


def counterparts(nodes: Iterable[Node], copy: Graph) -> dict[int, int]:
    """Map nodes to nodes of an excerpt by the names of their values.

    Args:
        nodes: Nodes of the original view; those that the excerpt lacks are ignored.
        copy: View of the excerpt.

    Returns:
        Index in the excerpt, by index in the original view.
    """
    wanted = list(nodes)
    made = {value.name: node.index for node in copy.nodes for value in node.outputs if value.name}
    results = {node.name: node.index for node in copy.of_op("Result")}
    pairs = {node.index: made[value.name] for node in wanted for value in node.outputs if value.name in made}
    return pairs | {node.index: results[node.name] for node in wanted if node.op == "Result"}


def _known(graph: onnx.GraphProto) -> set[str]:
    known: set[str] = {name for node in graph.node for name in node.output}
    known |= {tensor.name for tensor in graph.initializer}
    known |= {initializer.values.name for initializer in graph.sparse_initializer}
    return known | {info.name for info in graph.input}


def _declared(value: Value) -> onnx.ValueInfoProto:
    shape = None if value.shape is None else [size if isinstance(size, int) else None for size in value.shape]
    return onnx.helper.make_tensor_value_info(value.name, element_code(value.element_type), shape)
