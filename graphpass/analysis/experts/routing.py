"""Routing of tokens to experts."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.symbolic.folding import fold_elements, fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import MissError
from graphpass.ir.operators import CASTS, LAYOUT, SLICES, SPLITS
from graphpass.ir.values import fixed_size

#: Operators whose results are never negative.
_POSITIVE = frozenset({"Exp", "OneHot", "Relu", "Sigmoid", "SoftPlus", "Softmax"})

#: Operators whose results are not negative if no operand is.
_KEEP_SIGNS = frozenset({"Add", "Divide", "Maximum", "Minimum", "Multiply", "Reciprocal", "Sqrt"})

#: Operators whose results are not negative if the first operand is not.
_TAKE_SIGNS = LAYOUT | SLICES | SPLITS | {"Gather", "GatherElements", "ReduceMax", "ReduceSum", "TopK"}

#: Largest epsilon of a divisor, which does not change a sum of probabilities in f32.
_EPSILON = 1e-9

#: Maximum number of values between weights and the scores of a router.
_LIMIT = 64


@dataclass(frozen=True, slots=True)
class Routing:
    """The selected experts of each token and their weights.

    Attributes:
        chosen: Indices of the experts, ``[tokens, k]``.
        weights: Weights of the experts, ``[tokens, k]``, not negative.
        logits: Scores ``[tokens, experts]``, if weights are the ``k`` largest elements of their softmax; otherwise
            ``None``.
        is_normalized: Whether these elements are divided by their sum.
    """

    chosen: Value
    weights: Value
    logits: Value | None
    is_normalized: bool

    @property
    def slots(self) -> int:
        """Return ``k``, the number of experts of a token."""
        return fixed_size(self.chosen, 1) or 0


def read_routing(graph: Graph, chosen: Value, weights: Value, count: int) -> Routing:
    """Return the routing of tokens to experts.

    Args:
        graph: The graph.
        chosen: Indices of the selected experts, ``[tokens, k]``.
        weights: Weights of the selected experts, ``[tokens, k]``.
        count: Number of experts.

    Raises:
        MissError: A weight may be negative, or ``k`` is not fixed.
    """
    top = graph.producer(chosen)
    slots = fixed_size(chosen, 1)
    if top.op != "TopK" or (chosen.rank, top.attributes.get("axis")) != (2, 1) or slots is None:
        raise MissError(top, "expected a TopK along axis 1 that selects a fixed number of experts")
    if weights.rank != 2 or fixed_size(weights, 1) != slots:
        raise MissError(graph.producer(weights), "expected one weight for each selected expert, [tokens, k]")
    scores = graph.look_through(top.source(), CASTS)
    routing = _of_logits(graph, top, scores, graph.look_through(weights, CASTS))
    if routing is not None and routing[0].rank == 2 and fixed_size(routing[0], 1) == count:
        return Routing(chosen, weights, *routing)
    _require_positive(graph, weights)
    return Routing(chosen, weights, None, is_normalized=False)


def _of_logits(graph: Graph, top: Node, scores: Value, weights: Value) -> tuple[Value, bool] | None:
    if top.attributes.get("mode", "max") != "max":
        return None
    node = graph.producer(weights)
    if _is_softmax(node) and graph.look_through(node.source(), CASTS) == top.outputs[0]:
        return scores, True
    soft = graph.producer(scores)
    if not _is_softmax(soft):
        return None
    logits, is_normalized = graph.look_through(soft.source(), CASTS), False
    if node.op == "Divide":
        divisor = graph.producer(graph.look_through(node.source(1), CASTS))
        if divisor.op == "Add" and 0 <= (fold_scalar(graph, divisor.input(1)) or -1) <= _EPSILON:
            divisor = graph.producer(divisor.source())
        weights, is_normalized = graph.look_through(node.source(), CASTS), True
        axes = fold_elements(graph, divisor.input(1)) if divisor.op == "ReduceSum" else None
        is_sum = axes is not None and axes.tolist() in ([1], [-1]) and divisor.attributes.get("keeps_axes")
        if not is_sum or graph.look_through(divisor.source(), CASTS) != weights:
            return None
    node = graph.producer(weights)
    is_gathered = node.op == "GatherElements" and node.attributes.get("axis") == 1
    if is_gathered and node.source() == scores and node.source(1) == top.outputs[1]:
        return logits, is_normalized
    return (logits, is_normalized) if weights == top.outputs[0] else None


def _is_softmax(node: Node) -> bool:
    return node.op == "Softmax" and node.attributes.get("axis") == 1


def _require_positive(graph: Graph, weights: Value) -> None:
    pending, seen = [weights], {weights}
    while pending:
        value = pending.pop()
        node = graph.producer(value)
        if node.op in _POSITIVE:
            continue
        read: tuple[Value | None, ...]
        if node.op in _KEEP_SIGNS:
            read = node.inputs
        elif node.op in _TAKE_SIGNS:
            read = node.inputs[:1]
        else:
            constant = fold_elements(graph, value)
            if constant is None or (constant < 0).any() or len(seen) > _LIMIT:
                raise MissError(node, f"weights of experts may be negative, because {node.op} computes them")
            continue
        more = [value for value in read if value is not None and value not in seen]
        seen.update(more)
        pending += more
