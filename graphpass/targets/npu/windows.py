"""Detection of sliding windows over slots, which NPUW corrects in one form only.

Source: the matcher in ``npuw_transformations/phi3_sliding_mask.cpp`` of OpenVINO.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.analysis.caches.slot_indices import are_known_slots
from graphpass.analysis.pattern import Match, op, var
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
        if is_moved and node.index not in known and all(_is_position(graph, value) for value in operands):
            yield node


def _is_position(graph: Graph, value: Value) -> bool:
    def passes(node: Node) -> bool:
        return node.op in _LAYOUT or (node.op in {"Add", "Subtract"} and graph.constant(node.inputs[1]) is not None)

    return graph.producer(graph.look_through(value, passes)).op == "Range"
