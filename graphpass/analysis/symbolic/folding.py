"""Fold constants; `Graph.constant` reads literals only.

`fold` follows constants and known dimensions through layout and arithmetic, in each value's own type. Work is bounded:
each value of a graph is folded once, and no tensor of more than 4096 elements is read or computed. A Broadcast is a
view. Elements of shapes that are not known are moved and dropped, but never computed with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.ir.axes import Cut, cuts
from graphpass.ir.operators import COPIES, RESHAPES
from graphpass.ir.values import is_value_preserving

if TYPE_CHECKING:
    import numpy

    from graphpass.ir.graph import Graph, Node, Value


def fold(graph: Graph, value: Value | None) -> numpy.ndarray | None:
    """Compute ``value`` from constants and known dimensions alone.

    Returns:
        The tensor, read-only, perhaps a view of few elements; bf16 as f32. ``None`` if it depends on anything else, or
        on a missing file.
    """
    from graphpass.analysis.symbolic.arrays import folded

    found = folded(graph, value) if value is not None else None
    return found.values if found is not None and found.known.all() else None


def fold_scalar(graph: Graph, value: Value | None) -> float | None:
    """Return the only element of ``value``; see `fold`."""
    found = fold(graph, value)
    return float(found.item()) if found is not None and found.size == 1 else None


def fold_elements(graph: Graph, value: Value | None) -> numpy.ndarray | None:
    """Return the elements that ``value`` copies and lays out; see `fold`."""
    return None if value is None else fold(graph, graph.look_through(value, copies_elements))


def copies_elements(node: Node) -> bool:
    """Return whether ``node`` copies or lays out elements, perhaps to unknown shapes."""
    return is_value_preserving(node) or node.op in COPIES | RESHAPES


def fold_cuts(graph: Graph, node: Node) -> tuple[Cut, ...]:
    """Return the ranges that a Slice or StridedSlice keeps; none if unknown."""
    return cuts(node, lambda value: fold(graph, value))


def starts_at_first(graph: Graph, node: Node) -> bool:
    """Return whether ``node`` is a slice that keeps the first places along each axis."""
    found = fold_cuts(graph, node)
    return bool(found) and all(cut.starts_at_first for cut in found)


def reduced_axes(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """Return the axes that a reduction or norm works along; ``None`` if they are computed."""
    given = node.attributes.get("axes")
    found = fold(graph, node.input(1)) if given is None else None
    return given if found is None else tuple(int(axis) for axis in found.reshape(-1))
