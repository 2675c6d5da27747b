"""Tell whether padding in front of a prompt stays out of states that are no positions of attention."""

from __future__ import annotations

from graphpass.analysis.attention.find import find_attention
from graphpass.ir.cache import Cache
from graphpass.ir.model import Model
from graphpass.ir.operators import SHAPE_READERS

__all__ = ["absorbs_attention", "absorbs_padding"]

#: Through attention a mask hides padding from other positions, and its size is no mask.
_NO_WAY = SHAPE_READERS | {"ScaledDotProductAttention", "Softmax"}


def absorbs_padding(model: Model, cache: Cache) -> bool:
    """Return whether no ``attention_mask`` reaches what is written into ``cache`` but through attention itself.

    Args:
        model: The model.
        cache: One of its linear caches: what enters it stays in it.
    """
    return cache.write not in model.analysis(_masked_writes)


def absorbs_attention(model: Model, cache: Cache) -> bool:
    """Return whether a linear ``cache`` of ``model`` is computed from a result of attention."""
    graph = model.graph
    attention = {found.node.index for found in model.analysis(find_attention)}
    written = next(node for node in graph.of_op("Assign", "Result") if node.name == cache.write)
    return any(node.index in attention for node in graph.backward(written.inputs[:1], lambda node: node.inputs))


def _masked_writes(model: Model) -> set[str]:
    """Return the names of the Assigns and Results that an attention mask reaches."""
    masks = [node.outputs[0] for node in model.graph.of_op("Parameter") if node.name == "attention_mask"]
    reached = model.graph.forward(masks, lambda use: () if use.node.op in _NO_WAY else use.node.outputs)
    return {use.node.name for use in reached if use.node.op in {"Assign", "Result"}}
