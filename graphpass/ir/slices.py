"""What a slice keeps, as far as several analyses ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Node

__all__ = ["NO_END", "SLICES", "starts_at_first"]

#: Operators that keep a range of places along some axes.
SLICES = frozenset({"Slice", "StridedSlice"})

#: The last place that exporters name where they mean the end, at least: the highest i32.
NO_END = 2**31 - 1


def starts_at_first(graph: Graph, node: Node) -> bool:
    """Whether ``node`` is a Slice that keeps the first places along each axis that it cuts."""
    start = graph.constant(node.inputs[1]) if node.op == "Slice" else None
    return start is not None and not start.any()
