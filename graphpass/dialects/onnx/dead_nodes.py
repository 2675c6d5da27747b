"""Remove nodes whose outputs have no users, in a graph and its bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.dialects.onnx.graphsurgeon import inner_graphs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx_graphsurgeon as gs


def drop_dead(graphs: Sequence[gs.Graph], released: Iterable[gs.Tensor]) -> None:
    """Remove producers of tensors without users, and upstream nodes that lose their users.

    Args:
        graphs: The graph and all bodies, whose outputs are in use.
        released: Tensors that lost users, or were created.
    """
    ports = {id(tensor) for inner in graphs for tensor in inner.outputs}
    pending = [*released]
    dead: dict[int, gs.Node] = {}
    gone: dict[int, int] = {}

    def is_used(tensor: gs.Tensor) -> bool:
        return id(tensor) in ports or len(tensor.outputs) > gone.get(id(tensor), 0)

    while pending:
        for node in list(pending.pop().inputs):
            if id(node) in dead or any(is_used(output) for output in node.outputs):
                continue
            for inner in (node, *inner_nodes(node)):
                dead[id(inner)] = inner
                pending += inner.inputs
                for source in inner.inputs:
                    gone[id(source)] = gone.get(id(source), 0) + 1
    _detach(dead)
    for inner in graphs if dead else ():
        inner.nodes[:] = [node for node in inner.nodes if id(node) not in dead]


def _detach(nodes: dict[int, gs.Node]) -> None:
    """Remove all inputs of ``nodes``, a map by id.

    In graphsurgeon this compares each user of a tensor with each removed node, field by field.
    """
    sources = {id(source): source for node in nodes.values() for source in node.inputs}
    for source in sources.values():
        users = [user for user in source.outputs if id(user) not in nodes]
        list.clear(source.outputs)
        list.extend(source.outputs, users)
    for node in nodes.values():
        list.clear(node.inputs)


def inner_nodes(node: gs.Node) -> list[gs.Node]:
    """Return the nodes in the bodies of a node."""
    return [inner for body in inner_graphs([node]) for inner in body.nodes]
