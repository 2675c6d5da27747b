"""What in a graph cannot be given static shapes, or reads the padding that NPUW puts around a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphpass.graph import Graph, Node, Value

__all__ = ["data_dependent", "unpatched_window", "whole_rows_masked"]

#: Inputs of operators that say how large the result is.
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

_LAYOUT = frozenset({"Convert", "Reshape", "Squeeze", "Unsqueeze"})


def data_dependent(graph: Graph) -> Node | None:
    """The first operator whose result's shape follows from values that the model is fed or computes."""
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


def unpatched_window(graph: Graph) -> Iterator[Node]:
    """Comparisons of positions that let only the last ones through, in a form that NPUW does not know."""
    for node in graph.of_op("Greater", "GreaterEqual", "Less", "LessEqual"):
        offset = [graph.producer(value).op in {"Add", "Subtract"} for value in node.inputs if value is not None]
        positions = all(_is_position(graph, value) for value in node.inputs)
        if any(offset) and positions and not _is_patched(graph, node):
            yield node


def _is_position(graph: Graph, value: Value | None) -> bool:
    """Whether ``value`` is a Range, laid out and perhaps moved by a constant."""
    while value is not None:
        node = graph.producer(value)
        if node.op == "Range":
            return True
        moved = node.op in {"Add", "Subtract"} and graph.constant(node.inputs[1]) is not None
        if node.op not in _LAYOUT and not moved:
            return False
        value = node.inputs[0]
    return False


def _is_patched(graph: Graph, greater: Node) -> bool:
    if greater.op != "Greater":
        return False
    for inner in graph.uses(greater.outputs[0]):
        for outer in graph.uses(inner.node.outputs[0]) if inner.node.op == "BitwiseAnd" else ():
            others = [graph.producer(value).op for value in outer.node.inputs if value is not None]
            if outer.node.op == "BitwiseAnd" and "LessEqual" in others:
                return True
    return False


def whole_rows_masked(graph: Graph) -> Iterator[Node]:
    """Attention whose mask is boolean."""
    for node in graph.of_op("ScaledDotProductAttention"):
        mask = node.inputs[3] if len(node.inputs) > 3 else None
        if mask is not None and mask.element_type == "boolean":
            yield node
