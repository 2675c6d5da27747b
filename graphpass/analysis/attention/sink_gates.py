"""Find attention sinks that exporters write as a gate of the result.

``(softmax(scores) @ value) * sigmoid(logsumexp(scores) - sink)`` equals attention with ``sink`` as a logit.

Source: ``eager_attention_forward`` in ``modeling_granite_swa.py`` of transformers (5.24).
"""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.pattern import Match, look_through, op, var
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import CASTS, RESHAPES, SHAPE_READERS
from graphpass.ir.values import fixed_size

#: Axes of scores: batch, heads, queries, keys.
_RANK = 4

_SCORES = look_through(var("scores"), CASTS)
_HIGHEST = var("highest") & op.ReduceMax(_SCORES, ..., name="first")

#: OpenVINO's frontends subtract the largest score before they sum the exponentials.
_LOG_SUM = op.ReduceLogSumExp(_SCORES, ..., name="last") | op.Add(
    look_through(_HIGHEST, RESHAPES), op.Log(op.ReduceSum(op.Exp(op.Subtract(_SCORES, _HIGHEST)), ..., name="last"))
)

#: ``simplify-shapes`` and OpenVINO turn a Subtract of a constant into an Add of its negative.
_GATE = op.Multiply(
    var("result"),
    look_through(
        op.Sigmoid(
            look_through(var("difference") & op.Subtract(_LOG_SUM, var("sink")), CASTS)
            | look_through(var("difference") & op.Add(_LOG_SUM, var("negative")), CASTS)
        ),
        CASTS | RESHAPES,
    ),
)


@dataclass(frozen=True, slots=True)
class SinkGate:
    """A gate that applies an attention sink to the result.

    Attributes:
        node: The Multiply that gates the result.
        result: The result without the sink, an input of ``node``.
        sink: One logit per head, ``[1, heads, 1]`` or ``[1, heads, 1, 1]``.
        is_negative: Whether ``sink`` stores the negated logits.
        inside: Indices of the operators that compute the gate from the scores.
    """

    node: Node
    result: Value
    sink: Value
    is_negative: bool
    inside: frozenset[int]


def sink_gate(graph: Graph, softmax: Node, result: Value) -> SinkGate | None:
    """Return the gate that applies a sink to the result of ``softmax``; ``None`` without one.

    Args:
        graph: The graph.
        softmax: The Softmax, ``[batch, heads, queries, keys]``.
        result: The product of its probabilities and the value.
    """
    gated = _gated(graph, result)
    match = None if gated is None else _GATE.match(graph, gated)
    scores = graph.look_through(softmax.source(), CASTS)
    if not isinstance(match, Match) or match["scores"] != scores or scores.rank != _RANK:
        return None
    sums = [match.nodes[name] for name in ("first", "last") if name in match.nodes]
    is_negative = "negative" in match.values
    sink = match["negative" if is_negative else "sink"]
    factors = [value for value in match.node.sources if value != match["result"]]
    if any(node.attributes.get("axes") != (_RANK - 1,) for node in sums):
        return None
    if not _are_aligned(scores, match["result"], *factors) or not _is_one_a_head(sink, match["difference"]):
        return None
    upstream = graph.backward(factors, lambda node: () if scores in node.outputs else node.inputs)
    inside = {node.index for node in upstream if scores not in node.outputs}
    return SinkGate(match.node, match["result"], sink, is_negative, frozenset(inside))


def _gated(graph: Graph, result: Value) -> Node | None:
    """Return the Multiply that is the only user of ``result``, looking through casts and reshapes."""
    while True:
        users = [use.node for use in graph.uses(result) if use.node.op not in SHAPE_READERS]
        if len(users) != 1 or users[0].op not in CASTS | RESHAPES | {"Multiply"}:
            return None
        if users[0].op == "Multiply":
            return users[0]
        result = users[0].outputs[0]


def _are_aligned(scores: Value, result: Value, factor: Value) -> bool:
    """Return whether all three values begin with the axes batch, heads and queries."""
    shapes = [value.shape for value in (scores, result, factor)]
    if any(shape is None or len(shape) != _RANK for shape in shapes):
        return False
    heads = {shape[1] for shape in shapes if shape is not None}
    return len(heads) == 1 and isinstance(heads.pop(), int) and fixed_size(factor, -1) == 1


def _is_one_a_head(sink: Value, difference: Value) -> bool:
    """Return whether ``sink`` has one value per head of ``difference``, ``[batch, heads, queries, ..]``."""
    if sink.shape is None or difference.rank not in {_RANK - 1, _RANK}:
        return False
    axes = range(-len(sink.shape), 0)
    return all(size == 1 or axis == 1 - difference.rank for axis, size in zip(axes, sink.shape, strict=True))
