"""Recognize tensors that a model carries but that are no caches: adapter weights, counters."""

from __future__ import annotations

from graphpass.analysis.caches.moves import look_through_moves
from graphpass.analysis.caches.pairs import Pair
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import GATHERS, KEEPS_ORDER, MOVES
from graphpass.ir.values import INTEGERS

__all__ = ["adapter", "counter"]


def adapter(graph: Graph, pair: Pair) -> tuple[str, ...] | str:
    """Return why ``pair`` holds weights that are set from outside (LoRA), or the fact that is missing for that.

    A variable without initial value that no step changes holds what the application put there; a cache that is computed
    once has an initial value that computes it.
    """
    if pair.read.op != "ReadValue":
        return "it is an input of the model, not a variable"
    if pair.read.inputs:
        return "the variable has an initial value"
    if pair.present is not None and look_through_moves(graph, pair.present) != pair.past:
        return "a step changes it"
    written = "no step writes it" if pair.present is None else "each step writes it back as it is"
    use = _weighing(graph, pair.past)
    origin = f"it has no initial value, and {written}, so it holds what the application sets"
    return (origin,) if use is None else (origin, f"{use.op} {use.name} uses it like a weight: an adapter (LoRA)")


def _weighing(graph: Graph, value: Value) -> Node | None:
    uses = graph.forward([value], lambda use: use.node.outputs if use.node.op in MOVES else ())
    return next((use.node for use in uses if use.node.op in {"MatMul", "Multiply"}), None)


def counter(graph: Graph, pair: Pair) -> tuple[str, ...] | str:
    """Return why ``pair`` is a number that counts, or the fact that is missing for that."""
    shape = pair.past.shape
    if shape is None or len(shape) > 1:
        return f"it is no single number: its rank is {pair.past.rank or 'unknown'}"
    if pair.past.element_type not in INTEGERS:
        return f"it is no integer: {pair.past.element_type}"

    def lays_out(node: Node) -> bool:
        return node.op in KEEPS_ORDER | GATHERS and pair.past not in node.outputs

    present = graph.look_through(pair.present, lays_out) if pair.present is not None else pair.past
    node = graph.producer(present)
    operands = [graph.look_through(source, lays_out) for source in node.inputs if source is not None]
    if node.op not in {"Add", "Subtract"} or pair.past not in operands:
        return "no step adds to it"
    size = "one integer" if not shape or shape[0] == 1 else "one integer a batch entry"
    return (f"{size}, to which {node.op} {node.name} adds at each step: a counter",)
