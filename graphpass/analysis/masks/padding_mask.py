"""Finds the attention mask behind operators that are told lengths only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Value

__all__ = ["only_summed_mask", "summed_mask"]

#: Which input of GroupQueryAttention is seqlens_k.
_LENGTHS = 5


def only_summed_mask(graph: Graph) -> str | None:
    """The mask of which all GroupQueryAttention of ``graph`` get the sum; ``None`` where there is not just one."""
    found = {summed_mask(graph, node.inputs[_LENGTHS]) for node in graph.of_op("GroupQueryAttention")}
    return found.pop() if len(found) == 1 else None


def summed_mask(graph: Graph, lengths: Value | None) -> str | None:
    """The name of the mask of which ``lengths`` is the sum over its columns, less 1."""
    value = lengths
    less = 0
    while value is not None:
        node = graph.producer(value)
        if node.op in {"Convert", "Reshape", "Squeeze", "Identity"}:
            value = node.inputs[0]
        elif node.op in {"Subtract", "Add"}:
            number = graph.constant(node.inputs[1])
            if number is None or number.size != 1:
                return None
            less += int(number.item()) * (1 if node.op == "Subtract" else -1)
            value = node.inputs[0]
        elif node.op == "ReduceSum" and less == 1:
            source = node.inputs[0]
            while source is not None and graph.producer(source).op in {"Convert", "Identity"}:
                source = graph.producer(source).inputs[0]
            over = graph.constant(node.inputs[1]) if len(node.inputs) > 1 else None
            if source is None or source.rank != 2 or over is None or over.reshape(-1).tolist() not in ([1], [-1]):
                return None
            return source.name
        else:
            return None
    return None
