"""Follows what attention reads as key and value back to where it is kept, and which axis means what on the way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from graphpass.analysis.attention.axis_trace import Labels, before, copies_merged
from graphpass.analysis.attention.find import Attention, find_attention, is_computed, is_scalar
from graphpass.analysis.attention.sinks import COLUMN_DROPS
from graphpass.analysis.attention.softmax import broadcast_to_itself
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import INNER_CACHES

__all__ = ["Operand", "attention_operands", "scores_product", "weighted_value"]

_KEY_OR_VALUE: Labels = ("batch", "heads", "sequence", "head_dim")

#: Operators that lay a tensor out or take a part of it.
_LAYOUT = frozenset({"Broadcast", "Convert", "Gather", "Identity", "Slice", "StridedSlice", "Transpose", "Unsqueeze"})

#: Operators between a product of query and key, a Softmax, and the product with the value.
_ARITHMETIC = frozenset(
    {
        "Add",
        "Concat",
        "Convert",
        "Divide",
        "Dropout",
        "Identity",
        "Maximum",
        "Multiply",
        "Pad",
        "Reshape",
        "Select",
        "Slice",
        "Subtract",
    }
    | {"Tanh"}
)


@dataclass(frozen=True, slots=True)
class Operand:
    """That a value is read by attention, as it stands or through operators that only lay it out.

    Attributes:
        attention: Who reads it.
        role: As what.
        labels: What each of the value's axes means; ``None`` for an axis of copies.
    """

    attention: Attention
    role: Literal["key", "value"]
    labels: Labels


def attention_operands(model: Model) -> dict[tuple[int, int], tuple[Operand, ...]]:
    """For each value (node index, port) that attention reads as key or value through layout operators, by whom."""
    found: dict[tuple[int, int], tuple[Operand, ...]] = {}
    for attention in model.analysis(find_attention):
        if attention.node.op in INNER_CACHES:
            continue
        for role, operand, labels in _key_and_value(model.graph, attention):
            if operand is None or operand.rank not in {3, 4}:
                continue
            if operand.rank == 3:
                labels = ("rows", *labels[2:])
            for value, meaning in _trace(model.graph, operand, labels):
                place = (value.node, value.port)
                found[place] = (*found.get(place, ()), Operand(attention, role, meaning))
    return found


Read = tuple[Literal["key", "value"], Value | None, Labels]


def _key_and_value(graph: Graph, attention: Attention) -> list[Read]:
    """Role, operand and what the operand's axes mean."""
    key, value, transposed = attention.key, attention.value, attention.key_is_transposed
    if attention.reason is not None and not attention.is_fused:
        # A soft cap, a sink or the like: no plain attention, but its products still read caches.
        product = scores_product(graph, attention.node)
        key = product.inputs[1] if product is not None else None
        transposed = product is not None and not product.attributes["transpose_b"]
        value = weighted_value(graph, attention.node)
    key_labels: Labels = ("batch", "heads", "head_dim", "sequence") if transposed else _KEY_OR_VALUE
    return [("key", key, key_labels), ("value", value, _KEY_OR_VALUE)]


def scores_product(graph: Graph, softmax: Node) -> Node | None:
    """The nearest product of two computed tensors that leads to ``softmax`` through arithmetic."""
    pending, seen = deque(softmax.inputs[:1]), set()
    while pending:
        value = pending.popleft()
        node = graph.producer(value) if value is not None else None
        if node is None or node.index in seen:
            continue
        seen.add(node.index)
        if node.op == "MatMul" and all(is_computed(graph, operand) for operand in node.inputs):
            return node
        if node.op in _ARITHMETIC:
            pending.extend(node.inputs)
        elif (same := broadcast_to_itself(node)) is not None:
            pending.append(same)
    return None


def weighted_value(graph: Graph, softmax: Node) -> Value | None:
    """What the probabilities of ``softmax`` are multiplied with."""
    pending, seen = deque(softmax.outputs), set()
    while pending:
        for use in graph.uses(pending.popleft()):
            if use.node.op == "MatMul" and use.port == 0:
                return use.node.inputs[1]
            if use.node.op in _ARITHMETIC | COLUMN_DROPS and use.node.index not in seen:
                seen.add(use.node.index)
                pending.extend(use.node.outputs)
    return None


def _trace(graph: Graph, value: Value | None, labels: Labels) -> list[tuple[Value, Labels]]:
    steps: list[tuple[Value, Labels]] = []
    while value is not None:
        steps.append((value, labels))
        node = graph.producer(value)
        inside = _labels_before(graph, value, labels)
        if inside is None:
            return steps
        labels = inside
        value = node.inputs[0] if not (node.op == "Multiply" and is_scalar_operand(node, 0)) else node.inputs[1]
    return steps


def is_scalar_operand(node: Node, port: int) -> bool:
    """Whether input ``port`` of ``node`` scales the other as a whole."""
    value = node.inputs[port]
    return value is not None and is_scalar(value)


def _labels_before(graph: Graph, value: Value, labels: Labels) -> Labels | None:
    """What the axes of the input that ``value`` is a layout of mean; ``None`` where it is more than that."""
    node = graph.producer(value)
    if node.op in {"Multiply", "Divide"}:
        return labels if is_scalar_operand(node, 1) or is_scalar_operand(node, 0) else None
    if node.op == "Reshape":
        return _before_reshape(node, labels)
    steps = before(graph, value, labels) if node.op in _LAYOUT else []
    return next((step.labels for step in steps if step.via is None or step.via.kind == "slice"), None)


def _before_reshape(node: Node, labels: Labels) -> Labels | None:
    """A Reshape that merges copies into the heads, or the heads into the batch."""
    source = node.inputs[0]
    if source is None or source.rank is None:
        return None
    if "rows" in labels:
        # [batch, heads, ..] merged into [batch * heads, ..]
        return ("batch", "heads", *labels[1:]) if source.rank == 4 and labels[0] == "rows" else None
    if source.rank == len(labels):
        return labels if "heads" in labels and source.shape == node.outputs[0].shape else None
    return copies_merged(source.rank, labels)
