"""Shapes that depend on data, which NPUW cannot make static."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Node

__all__ = ["data_dependent"]

#: Inputs of operators that give the size of the result.
_SIZES: dict[str, tuple[int, ...]] = {
    "Broadcast": (1,),
    "Pad": (1, 2),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Slice": (1, 2, 3),
    "StridedSlice": (1, 2, 3),
    "Tile": (1,),
    "TopK": (1,),
    "VariadicSplit": (2,),
}


def data_dependent(graph: Graph) -> Node | None:
    """Return the first operator whose result's shape follows from data."""
    computed: set[int] = set()
    for node in graph.nodes:
        if node.op in {"Constant", "ShapeOf"}:
            continue
        if node.op in {"Parameter", "ReadValue"}:
            computed.add(node.index)
            continue
        if any(value is not None and value.node in computed for value in node.inputs):
            computed.add(node.index)
            sizes = [node.inputs[port] for port in _SIZES.get(node.op, ()) if port < len(node.inputs)]
            if node.op == "NonZero" or any(value is not None and value.node in computed for value in sizes):
                return node
    return None
