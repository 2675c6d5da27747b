"""Whether padding in front of a prompt stays out of the states that are no positions of attention."""

from __future__ import annotations

from graphpass.caches import Cache
from graphpass.graph import Graph

__all__ = ["absorbs_padding"]

#: Through attention a mask hides padding from other positions, and its size is no mask.
_NO_WAY = frozenset({"ScaledDotProductAttention", "ShapeOf", "Softmax"})


def absorbs_padding(graph: Graph, cache: Cache) -> bool:
    """Whether no ``attention_mask`` reaches what is written into ``cache`` but through attention itself.

    Args:
        graph: The model.
        cache: One of its linear caches: what enters it stays in it.
    """
    masked: set[int] = set()
    for node in graph.nodes:
        if (node.op == "Parameter" and node.name == "attention_mask") or (
            node.op not in _NO_WAY and any(value is not None and value.node in masked for value in node.inputs)
        ):
            masked.add(node.index)
    written = (node.index for node in graph.of_op("Assign", "Result") if node.name == cache.write)
    return not any(index in masked for index in written)
