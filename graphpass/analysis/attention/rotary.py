"""Find the positions that rotary embeddings and tables of positions read."""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import CASTS


def moved_positions(graph: Graph) -> Node | None:
    """Return the Add of a Range and the past length upstream of angles or tables."""
    for node in [*positions_of_angles(graph), *_rows_of_tables(graph)]:
        if node.op == "Add" and any(graph.producer(side).op == "Range" for side in node.sources):
            return node
    return None


def positions_of_angles(graph: Graph) -> Iterator[Node]:
    """Return the nodes upstream of Sin and Cos, up to sizes and Ranges."""
    angles = [value for node in graph.of_op("Sin", "Cos") for value in node.inputs]
    return graph.backward(angles, lambda node: () if node.op in {"ShapeOf", "Range"} else node.inputs)


def _rows_of_tables(graph: Graph) -> Iterator[Node]:
    """Return integer nodes upstream of the indices of constant tables, up to sizes and Ranges."""
    rows = [
        node.inputs[1]
        for node in graph.of_op("Gather", "GatherElements", "GatherND")
        if graph.producer(graph.look_through(node.source(), CASTS)).op == "Constant"
    ]

    def integers(node: Node) -> list[Value]:
        kept = () if node.op in {"ShapeOf", "Range"} else node.inputs
        return [value for value in kept if value is not None and value.element_type in {"i32", "i64"}]

    return graph.backward(rows, integers)
