"""Match the indices of cache slots in the form of exporters and of `expose-window`.

NPUW recognizes only this form (``npuw_transformations/phi3_sliding_mask.cpp`` of openvino).
"""

from __future__ import annotations

from graphpass.analysis.pattern import Match, Pattern, op, var
from graphpass.ir.graph import Graph, Value


def _laid_out(places: Pattern) -> Pattern:
    """Return the pattern of a Range after three Unsqueezes, with or without a Convert."""
    for _ in range(3):
        places = op.Unsqueeze(places, ...)
    return places | op.Convert(places)


_PAST = var("past") & (op.Gather(...) | op.Squeeze(op.Gather(...)))
_WHOLE = op.Add(var("past"), var())
_QUERIES = _laid_out(op.Range(_PAST, _WHOLE, ...))
_KEYS = _laid_out(op.Range(op.Constant(), _WHOLE, ...))


def are_known_slots(graph: Graph, keys: Value, queries: Value) -> bool:
    """Return whether slots of keys and queries have the form that NPUW recognizes.

    Args:
        graph: The graph of both.
        keys: Slots of the keys: a Range from a constant to the past length plus another number.
        queries: Slots of the queries: a Range from the past length, which is a Gather, to the past length plus another
            number.
    """
    match = _QUERIES.match(graph, queries)
    return isinstance(match, Match) and isinstance(_KEYS.match(graph, keys, match), Match)
