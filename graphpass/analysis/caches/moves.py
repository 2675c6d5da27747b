"""Look through operators that only move, drop or convert whole positions of a cache."""

from __future__ import annotations

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import CASTS, SLICES

__all__ = ["MOVES_POSITIONS", "look_through_moves"]

#: Leave the content of a cache as it is, or only move, drop or convert whole positions.
MOVES_POSITIONS = CASTS | SLICES | {"Gather", "ScatterElementsUpdate", "Carried", "Final"}


def look_through_moves(graph: Graph, value: Value) -> Value:
    """Return what lies upstream of ``value``, past moves of whole positions."""

    def moves(node: Node) -> bool:
        return node.op in MOVES_POSITIONS and (node.op != "ScatterElementsUpdate" or _only_moves(graph, node))

    return graph.look_through(value, moves)


def _only_moves(graph: Graph, scatter: Node) -> bool:
    """Return whether ``scatter`` writes into a cache what stood elsewhere in it, as reordering does."""
    ops = MOVES_POSITIONS - {"ScatterElementsUpdate"}
    return graph.look_through(scatter.source(0), ops) == graph.look_through(scatter.source(2), ops)
