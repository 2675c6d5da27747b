"""Find the shortest data path between two operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.ir.operators import NO_DATA

if TYPE_CHECKING:
    import networkx

    from graphpass.ir.graph import Node
    from graphpass.ir.model import Model


def shortest_way(model: Model, start: Node, end: Node) -> tuple[Node, ...]:
    """Return the operators on a shortest path; empty without a path.

    Args:
        model: The model of both nodes; paths through bodies exist only if the bodies are inlined.
        start: First operator of the path.
        end: Last operator of the path.
    """
    import networkx

    edges = model.analysis(_ways)
    if not networkx.has_path(edges, start.index, end.index):
        return ()
    return tuple(model.graph.nodes[index] for index in networkx.shortest_path(edges, start.index, end.index))


def _ways(model: Model) -> networkx.DiGraph:
    edges = model.graph.edges.copy()
    # A loop without iterations outputs its initial value; this edge would bypass the body.
    for node in model.graph.of_op("Final"):
        result, *start = (value.node for value in node.sources)
        edges.remove_edges_from((index, node.index) for index in start if index != result)
    edges.remove_nodes_from(node.index for node in model.graph.nodes if node.op in NO_DATA)
    return edges
