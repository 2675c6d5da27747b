"""Find the shortest way from one operator to another by data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.ir.operators import NO_DATA

if TYPE_CHECKING:
    import networkx

    from graphpass.ir.graph import Node
    from graphpass.ir.model import Model


def shortest_way(model: Model, start: Node, end: Node) -> tuple[Node, ...]:
    """Return the operators from ``start`` to ``end``, both included; none without a path."""
    import networkx

    ways = model.analysis(_ways)
    if not networkx.has_path(ways, start.index, end.index):
        return ()
    return tuple(model.graph.nodes[index] for index in networkx.shortest_path(ways, start.index, end.index))


def _ways(model: Model) -> networkx.DiGraph:
    ways = model.graph.edges.copy()
    # Without iterations a loop passes its start on, but its iterations matter.
    for node in model.graph.of_op("Final"):
        result, *start = (value.node for value in node.sources)
        ways.remove_edges_from((index, node.index) for index in start if index != result)
    ways.remove_nodes_from(node.index for node in model.graph.nodes if node.op in NO_DATA)
    return ways
