"""Trace keys and values of attention upstream through layout operators, with labels of axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphpass.analysis.attention.axis_trace import BHDL, BHLD, Labels, before, copies_merged
from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.softmax import score_products, weighing_product
from graphpass.analysis.attention.types import Attention
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import INNER_CACHES, LAYOUT, PICKS
from graphpass.ir.values import is_scalar


@dataclass(frozen=True, slots=True)
class Operand:
    """A key or value of attention, and the values upstream of it through layout operators.

    Attributes:
        attention: The attention block.
        role: Operand of the attention.
        places: The operand, then values upstream of it, with labels of their axes; axes of copied heads have ``None``.
    """

    attention: Attention
    role: Literal["key", "value"]
    places: tuple[tuple[Value, Labels], ...]


def attention_operands(model: Model) -> tuple[Operand, ...]:
    """Return keys and values of all attention except operators in `INNER_CACHES`, for `Model.analysis`."""
    operands = []
    for attention in model.analysis(find_attention):
        for role, operand, labels in _key_and_value(model.graph, attention):
            if operand is not None and operand.rank in {3, 4}:
                own = ("rows", *labels[2:]) if operand.rank == 3 else labels
                operands.append(Operand(attention, role, tuple(_trace(model.graph, operand, own))))
    return tuple(operands)


Read = tuple[Literal["key", "value"], Value | None, Labels]


def _key_and_value(graph: Graph, attention: Attention) -> list[Read]:
    """Return key and value with labels; empty for operators in `INNER_CACHES`."""
    key, value, transposed = attention.key, attention.value, attention.key_is_transposed
    if attention.node.op in INNER_CACHES:
        return []
    if attention.miss is not None:
        # The products of other attention, for example with a soft cap, read caches as well.
        product = scores_product(graph, attention.node)
        key = product.inputs[1] if product is not None else None
        transposed = product is not None and not product.attributes["transpose_b"]
        value = weighted_value(graph, attention.node)
    return [("key", key, BHDL if transposed else BHLD), ("value", value, BHLD)]


def scores_product(graph: Graph, softmax: Node) -> Node | None:
    """Return the last product of two activations upstream of ``softmax``; ``None`` without one.

    Args:
        graph: The graph.
        softmax: The Softmax of decomposed attention, which may have a miss.
    """
    return max(score_products(graph, softmax.source()), key=lambda node: node.index, default=None)


def weighted_value(graph: Graph, softmax: Node) -> Value | None:
    """Return the value operand of the product with the probabilities of ``softmax``.

    Args:
        graph: The graph.
        softmax: See `scores_product`.

    Returns:
        The operand; ``None`` without a product.
    """
    product = weighing_product(graph, softmax)
    return product.inputs[1] if product is not None else None


def _trace(graph: Graph, value: Value | None, labels: Labels) -> list[tuple[Value, Labels]]:
    steps: list[tuple[Value, Labels]] = []
    while value is not None:
        steps.append((value, labels))
        node = graph.producer(value)
        inside = _labels_before(graph, value, labels)
        if inside is None:
            return steps
        labels = inside
        value = node.inputs[1 if node.op == "Multiply" and is_scalar(node.source()) else 0]
    return steps


def _labels_before(graph: Graph, value: Value, labels: Labels) -> Labels | None:
    node = graph.producer(value)
    if node.op in {"Multiply", "Divide"}:
        return labels if any(is_scalar(operand) for operand in node.sources) else None
    if node.op == "Reshape":
        return _before_reshape(node, labels)
    steps = before(graph, value, labels) if node.op in LAYOUT | PICKS else []
    return next((step.labels for step in steps if step.passed is None or step.passed.kind == "slice"), None)


def _before_reshape(node: Node, labels: Labels) -> Labels | None:
    """Return the labels before a Reshape that merges copies of heads, or batch and heads."""
    source = node.inputs[0]
    if source is None or source.rank is None:
        return None
    if "rows" in labels:
        # [batch, heads, ..] merged into [batch * heads, ..]
        return ("batch", "heads", *labels[1:]) if source.rank == 4 and labels[0] == "rows" else None
    if source.rank == len(labels):
        return labels if "heads" in labels and source.shape == node.outputs[0].shape else None
    return copies_merged(source.rank, labels)
