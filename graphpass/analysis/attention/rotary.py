"""Find the positions that turn queries and keys."""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.ir.graph import Graph, Node


def moved_positions(graph: Graph) -> Node | None:
    """Return the Add of a Range and the past's length that feeds Sin or Cos."""
    for node in positions_of_angles(graph):
        if node.op == "Add" and any(graph.producer(side).op == "Range" for side in node.inputs if side is not None):
            return node
    return None


def positions_of_angles(graph: Graph) -> Iterator[Node]:
    """Yield the nodes upstream of Sin and Cos, up to sizes and Ranges."""
    angles = [value for node in graph.of_op("Sin", "Cos") for value in node.inputs]
    return graph.backward(angles, lambda node: () if node.op in {"ShapeOf", "Range"} else node.inputs)
