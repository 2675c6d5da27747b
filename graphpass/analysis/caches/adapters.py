"""Recognize tensors that a model carries but that are no caches: adapter weights, counters."""

from __future__ import annotations

from graphpass.analysis.caches.moves import look_through_moves
from graphpass.analysis.caches.pairs import Pair
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import GATHERS, KEEPS_ORDER, MOVES
from graphpass.ir.values import INTEGERS

__all__ = ["adapter", "counter"]


def adapter(graph: Graph, pair: Pair) -> tuple[str, ...] | None:
    """Return why ``pair`` holds weights that are set from outside (LoRA); ``None`` if it does not.

    A variable without initial value that no step changes holds what the application put there; a cache that is computed
    once has an initial value that computes it.
    """
    if pair.read.op != "ReadValue" or pair.read.inputs:
        return None
    if pair.present is not None and look_through_moves(graph, pair.present) != pair.past:
        return None
    written = "no step writes it" if pair.present is None else "each step writes it back as it is"
    use = _weighing(graph, pair.past)
    origin = f"it has no initial value, and {written}, so it holds what the application sets"
    return (origin,) if use is None else (origin, f"{use.op} {use.name} uses it like a weight: an adapter (LoRA)")


def _weighing(graph: Graph, value: Value) -> Node | None:
    uses = graph.forward([value], lambda use: use.node.outputs if use.node.op in MOVES else ())
    return next((use.node for use in uses if use.node.op in {"MatMul", "Multiply"}), None)


def counter(graph: Graph, pair: Pair) -> tuple[str, ...] | None:
    """Return why ``pair`` is a number that counts; ``None`` if it is not."""
    shape = pair.past.shape
    if pair.present is None or pair.past.element_type not in INTEGERS or shape is None or len(shape) > 1:
        return None

    def lays_out(node: Node) -> bool:
        return node.op in KEEPS_ORDER | GATHERS and pair.past not in node.outputs

    node = graph.producer(graph.look_through(pair.present, lays_out))
    if node.op not in {"Add", "Subtract"}:
        return None
    if pair.past not in [graph.look_through(source, lays_out) for source in node.inputs if source is not None]:
        return None
    size = "one integer" if not shape or shape[0] == 1 else "one integer a batch entry"
    return (f"{size}, to which {node.op} {node.name} adds at each step: a counter",)
