"""Tensors that a model carries but that are no caches: adapter weights, counters."""

from __future__ import annotations

from graphpass.analysis.caches.pairs import Pair, same_tensor
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.values import INTEGERS

__all__ = ["adapter", "counter"]


def adapter(graph: Graph, pair: Pair) -> tuple[str, ...] | None:
    """Why ``pair`` holds weights that are set from outside (LoRA), where it does.

    A variable that starts as nothing in particular and that no step changes holds what the application put there; a
    cache that is computed once has an initial value that computes it.
    """
    if pair.read.op != "ReadValue" or pair.read.inputs:
        return None
    if pair.present is not None and same_tensor(graph, pair.present) != pair.past:
        return None
    written = "no step writes it" if pair.present is None else "each step writes it back as it is"
    use = _weighing(graph, pair.past)
    origin = f"it has no initial value, and {written}, so it holds what the application sets"
    return (origin,) if use is None else (origin, f"{use.op} {use.name} uses it like a weight: an adapter (LoRA)")


def _weighing(graph: Graph, value: Value) -> Node | None:
    pending, seen = [value], set()
    while pending:
        for use in graph.uses(pending.pop()):
            if use.node.op in {"MatMul", "Multiply"}:
                return use.node
            if use.node.op in {"Convert", "Identity", "Transpose", "Reshape"} and use.node.index not in seen:
                seen.add(use.node.index)
                pending.extend(use.node.outputs)
    return None


def counter(graph: Graph, pair: Pair) -> tuple[str, ...] | None:
    """Why ``pair`` is a number that counts, where it is one."""
    shape = pair.past.shape
    if pair.present is None or pair.past.element_type not in INTEGERS or shape is None or len(shape) > 1:
        return None
    node = _without_layout(graph, pair.present)
    if node is None or node.op not in {"Add", "Subtract"}:
        return None
    if not any(source is not None and _same_number(graph, source, pair.past) for source in node.inputs):
        return None
    size = "one integer" if not shape or shape[0] == 1 else "one integer a batch entry"
    return (f"{size}, to which {node.op} {node.name} adds at each step: a counter",)


_LAYOUT = frozenset({"Convert", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Gather"})


def _without_layout(graph: Graph, value: Value) -> Node | None:
    node = graph.producer(value)
    while node.op in _LAYOUT and node.inputs[0] is not None:
        node = graph.producer(node.inputs[0])
    return node


def _same_number(graph: Graph, value: Value, past: Value) -> bool:
    while value != past:
        node = graph.producer(value)
        if node.op not in _LAYOUT or node.inputs[0] is None:
            return False
        value = node.inputs[0]
    return True
