"""Resolve the source of ``seqlens_k`` of GroupQueryAttention.

``seqlens_k`` is the number of positions of each row minus 1 (docs/ContribOperators.md of ONNX Runtime).
"""

from __future__ import annotations

from graphpass.analysis.pattern import Match, look_through, op, var
from graphpass.analysis.symbolic.expressions import ONE, add
from graphpass.analysis.symbolic.sizes import Sizes
from graphpass.ir.graph import Graph, Value
from graphpass.ir.operators import CASTS, KEEPS_ORDER, LAYOUT

#: Ports of ``seqlens_k`` and ``total_sequence_length``.
LENGTHS, TOTAL = 5, 6

_SUM = look_through(op.ReduceSum(var(), ..., name="sum"), KEEPS_ORDER)
_SUM_LESS_ONE = look_through(op.Subtract(_SUM, 1) | op.Add(_SUM, -1), KEEPS_ORDER)


def summed_mask(graph: Graph, lengths: Value | None) -> Value | None:
    """Return the mask ``[batch, positions]`` whose row sums minus 1 are ``lengths``, if any.

    Args:
        graph: The graph.
        lengths: Input ``seqlens_k``; ``None`` if omitted, which has no mask.
    """
    match = _SUM_LESS_ONE.match(graph, lengths) if lengths is not None else None
    if not isinstance(match, Match):
        return None
    total = match.nodes["sum"]
    mask = graph.look_through(total.source(), CASTS)
    return mask if mask.rank == 2 and total.attributes.get("axes") == (1,) else None


def only_summed_mask(graph: Graph) -> Value | None:
    """Return the mask whose row sums all GroupQueryAttention read; ``None`` if they differ."""
    masks = {summed_mask(graph, node.inputs[LENGTHS]) for node in graph.of_op("GroupQueryAttention")}
    return masks.pop() if len(masks) == 1 else None


def rows_are_full(graph: Graph, lengths: Value, total: Value) -> bool:
    """Return whether ``lengths`` is ``total - 1`` for each row, so that no row has padding.

    Args:
        graph: The graph.
        lengths: Input ``seqlens_k``, ``[batch]``.
        total: Input ``total_sequence_length``, one element.
    """
    sizes = Sizes(graph, {})
    last, count = (sizes.content(value) for value in (graph.look_through(lengths, LAYOUT), total))
    if last is None or count is None or len(last) != 1 or len(count) != 1:
        return False
    return add(last[0], ONE) is count[0]
