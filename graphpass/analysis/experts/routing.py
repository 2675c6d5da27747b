"""Read how tokens choose their experts."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.symbolic.folding import fold_elements, fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import MissError
from graphpass.ir.operators import CASTS, LAYOUT, SLICES, SPLITS
from graphpass.ir.values import fixed_size

#: Give no number below 0, whatever they read.
_POSITIVE = frozenset({"Exp", "OneHot", "Relu", "Sigmoid", "SoftPlus", "Softmax"})

#: Give no number below 0 if no operand has one.
_KEEP_SIGNS = frozenset({"Add", "Divide", "Maximum", "Minimum", "Multiply", "Reciprocal", "Sqrt"})

#: Give no number below 0 if the first operand has none.
_TAKE_SIGNS = LAYOUT | SLICES | SPLITS | {"Gather", "GatherElements", "ReduceMax", "ReduceSum", "TopK"}

#: Added to sums so that none is 0; it changes no sum of probabilities.
_EPSILON = 1e-9

#: Operators from weights to the scores of a router.
_LIMIT = 64


@dataclass(frozen=True, slots=True)
class Routing:
    """The weights of each token's experts.

    Attributes:
        chosen: The experts, ``[tokens, k]``.
        weights: Their weights, ``[tokens, k]``, none below 0.
        logits: Scores ``[tokens, experts]`` whose softmax gives the weights of its ``k`` largest elements; ``None`` if
            they come about otherwise.
        is_normalized: Whether these are divided by their sum.
    """

    chosen: Value
    weights: Value
    logits: Value | None
    is_normalized: bool

    @property
    def slots(self) -> int:
        """Return the number of experts of a token."""
        return fixed_size(self.chosen, 1) or 0


def read_routing(graph: Graph, chosen: Value, weights: Value, count: int) -> Routing:
    """Return the routing to ``count`` experts.

    Raises:
        MissError: A weight may be below 0, or the number of experts of a token is not fixed.
    """
    top = graph.producer(chosen)
    slots = fixed_size(chosen, 1)
    if top.op != "TopK" or (chosen.rank, top.attributes.get("axis")) != (2, 1) or slots is None:
        raise MissError(top, "it does not choose a fixed number of experts for each token")
    if weights.rank != 2 or fixed_size(weights, 1) != slots:
        raise MissError(graph.producer(weights), "it gives no weight for each choice")
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
                raise MissError(node, f"weights of experts may be below 0, since {node.op} makes them")
            continue
        more = [value for value in read if value is not None and value not in seen]
        seen.update(more)
        pending += more
