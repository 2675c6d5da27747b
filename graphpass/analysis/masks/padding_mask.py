"""Find the attention mask upstream of operators that read lengths only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.ir.constants import reduced_axes
from graphpass.ir.operators import CASTS, KEEPS_ORDER
from graphpass.ir.pattern import Match, look_through, op, var

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Value

__all__ = ["only_summed_mask", "summed_mask"]

#: Input seqlens_k of GroupQueryAttention.
_LENGTHS = 5

_SUM = look_through(op.ReduceSum(var(), ..., name="sum"), KEEPS_ORDER)
_SUM_LESS_ONE = look_through(op.Subtract(_SUM, 1) | op.Add(_SUM, -1), KEEPS_ORDER)


def only_summed_mask(graph: Graph) -> Value | None:
    """Return the mask of which all GroupQueryAttention of ``graph`` get the sum; ``None`` if they differ."""
    found = {summed_mask(graph, node.inputs[_LENGTHS]) for node in graph.of_op("GroupQueryAttention")}
    return found.pop() if len(found) == 1 else None


def summed_mask(graph: Graph, lengths: Value | None) -> Value | None:
    """Return the mask of which ``lengths`` is the sum over its columns, less 1."""
    match = _SUM_LESS_ONE.match(graph, lengths) if lengths is not None else None
    if not isinstance(match, Match):
        return None
    total = match.nodes["sum"]
    mask = graph.look_through(total.source(), CASTS)
    return mask if mask.rank == 2 and reduced_axes(graph, total) in {(1,), (-1,)} else None
