"""Detection of sliding windows over slots, which NPUW corrects in one form only.

Source: the matcher in ``npuw_transformations/phi3_sliding_mask.cpp`` of OpenVINO.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.analysis.caches.slot_indices import are_known_slots
from graphpass.analysis.pattern import Match, op, var
from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.ir.graph import Graph, Node, Value

_LAYOUT = frozenset({"Convert", "Reshape", "Squeeze", "Unsqueeze"})


_GREATER = op.Greater(var("keys"), op.Add(var("queries"), op.Constant()), name="window")
_WINDOW = op.BitwiseAnd(op.BitwiseAnd(_GREATER, var()), op.LessEqual(var("keys"), var("queries")))


def unpatched_window(graph: Graph) -> Iterator[Node]:
    """Yield the comparisons of slots in windows that NPUW does not correct."""
    known = {
        match.nodes["window"].index
        for node in graph.of_op("BitwiseAnd")
        if isinstance(match := _WINDOW.match(graph, node), Match)
        and are_known_slots(graph, match["keys"], match["queries"])
    }
    for node in graph.of_op("Greater", "GreaterEqual", "Less", "LessEqual"):
        operands = (node.source(0), node.source(1))
        is_moved = any(graph.producer(value).op in {"Add", "Subtract"} for value in operands)
        compares = is_moved and all(_is_position(graph, value) for value in operands)
        if (compares and node.index not in known) or _limits_distance(graph, *operands):
            yield node


def _limits_distance(graph: Graph, distance: Value, limit: Value) -> bool:
    """Return whether a distance of slots is compared with a constant above 1.

    Causal masks compare it with 0 or 1.
    """
    made, number = graph.producer(distance), fold_scalar(graph, limit)
    is_limit = number is not None and abs(number) > 1
    return is_limit and made.op == "Subtract" and all(_is_slot(graph, value) for value in made.sources)


def _is_slot(graph: Graph, value: Value) -> bool:
    """Return whether a value is a Range plus lengths."""

    def passes(node: Node) -> bool:
        return node.op in _LAYOUT or _adds(graph, node) or (node.op in {"Add", "Subtract"} and node.source(1).rank == 0)

    return graph.producer(graph.look_through(value, passes)).op == "Range"


def _adds(graph: Graph, node: Node) -> bool:
    """Return whether a sum has a constant."""
    return node.op in {"Add", "Subtract"} and graph.constant(node.inputs[1]) is not None


def _is_position(graph: Graph, value: Value) -> bool:
    def passes(node: Node) -> bool:
        return node.op in _LAYOUT or _adds(graph, node)

    return graph.producer(graph.look_through(value, passes)).op == "Range"
