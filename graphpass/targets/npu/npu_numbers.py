"""What in a graph cannot be given static shapes, or reads the padding that NPUW puts around a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphpass.ir.graph import Graph, Node, Value

__all__ = ["are_known_places", "data_dependent", "unpatched_window", "whole_rows_masked"]

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
    """Whether NPUW knows ``greater`` for a window, with a causal condition that compares the same places."""
    keys, first = greater.inputs
    if greater.op != "Greater" or keys is None or first is None or graph.producer(first).op != "Add":
        return False
    moved = [value for value in graph.producer(first).inputs if value is not None and graph.constant(value) is None]
    if len(moved) != 1 or not are_known_places(graph, keys, moved[0]):
        return False
    for inner in graph.uses(greater.outputs[0]):
        for outer in graph.uses(inner.node.outputs[0]) if inner.node.op == "BitwiseAnd" else ():
            others = [graph.producer(value) for value in outer.node.inputs if value is not None]
            if outer.node.op == "BitwiseAnd" and any(
                other.op == "LessEqual" and other.inputs == (keys, moved[0]) for other in others
            ):
                return True
    return False


def are_known_places(graph: Graph, keys: Value, queries: Value) -> bool:
    """Whether places in the cache are counted as NPUW knows them: by Ranges with an Unsqueeze for each new axis.

    Rule: the matcher of phi3_sliding_mask.cpp of openvino.

    Args:
        graph: What holds both.
        keys: Places of the keys, counted from 0 to the sum of the past's length and another.
        queries: Places of the queries, counted from the past's length, which a Gather takes, to such a sum.
    """
    ranges = [_unsqueezed_range(graph, places) for places in (graph.producer(keys), graph.producer(queries))]
    if ranges[0] is None or ranges[1] is None:
        return False
    past = ranges[1].inputs[0]
    sums = [_producer(graph, found.inputs[1]) for found in ranges if found is not None]
    if past is None or any(node is None or node.op != "Add" or past not in node.inputs for node in sums):
        return False
    length = graph.producer(past)
    if length.op == "Squeeze" and len(length.inputs) == 1:
        length = _producer(graph, length.inputs[0]) or length
    return length.op == "Gather" and graph.constant(ranges[0].inputs[0]) is not None


def _unsqueezed_range(graph: Graph, node: Node) -> Node | None:
    """The Range of which ``node`` is the third Unsqueeze; behind it the keys' may be converted."""
    found: Node | None = node
    if node.op == "Convert":
        found = _producer(graph, node.inputs[0])
    for _ in range(3):
        if found is None or found.op != "Unsqueeze":
            return None
        found = _producer(graph, found.inputs[0])
    return found if found is not None and found.op == "Range" else None


def _producer(graph: Graph, value: Value | None) -> Node | None:
    return None if value is None else graph.producer(value)


def whole_rows_masked(graph: Graph) -> Iterator[Node]:
    """Attention whose mask is boolean."""
    for node in graph.of_op("ScaledDotProductAttention"):
        mask = node.inputs[3] if len(node.inputs) > 3 else None
        if mask is not None and mask.element_type == "boolean":
            yield node
