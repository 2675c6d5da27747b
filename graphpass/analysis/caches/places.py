"""Match places in the cache as exporters and `expose-window` count them.

NPUW knows no other form (``npuw_transformations/phi3_sliding_mask.cpp`` of openvino).
"""

from __future__ import annotations

from graphpass.analysis.pattern import Match, Pattern, op, var
from graphpass.ir.graph import Graph, Value


def _laid_out(places: Pattern) -> Pattern:
    """Return the pattern of a Range with three Unsqueezes, perhaps converted."""
    for _ in range(3):
        places = op.Unsqueeze(places, ...)
    return places | op.Convert(places)


_PAST = var("past") & (op.Gather(...) | op.Squeeze(op.Gather(...)))
_WHOLE = op.Add(var("past"), var())
_QUERIES = _laid_out(op.Range(_PAST, _WHOLE, ...))
_KEYS = _laid_out(op.Range(op.Constant(), _WHOLE, ...))


def are_known_places(graph: Graph, keys: Value, queries: Value) -> bool:
    """Return whether places in the cache are counted in NPUW's form.

    Args:
        graph: The graph of both.
        keys: Places of the keys, counted from 0 to the sum of the past's length and another.
        queries: Places of the queries, counted from the past's length, the result of a Gather, to such a sum.
    """
    match = _QUERIES.match(graph, queries)
    return isinstance(match, Match) and isinstance(_KEYS.match(graph, keys, match), Match)
