"""Finds where a graph computes attention: fused operators, and the decomposed form around each Softmax.

The decomposed form is ``softmax(scale * query @ key^T + mask) @ value`` as exporters write it: the scale on either
operand, on both, or on the product; the mask by Add, Subtract or Select, before the scale or after it; a guard behind
the Softmax that turns the NaN of rows which are masked whole into 0; conversions around the Softmax; the key transposed
by a Transpose or by the MatMul; a sink, which is one more column of scores that is dropped behind the Softmax; the
maximum of each row subtracted before it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from graphpass.analysis.attention.match import match
from graphpass.analysis.attention.softmax import is_attention
from graphpass.analysis.attention.types import Mask, NoMatchError, Scale
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.values import is_computed, is_scalar

__all__ = ["OPERATORS", "Attention", "Mask", "Scale", "find_attention", "is_computed", "is_scalar"]

#: Operators that compute attention as a whole: operator -> ports of query, key, value; none for those that compute all
#: three themselves.
OPERATORS: dict[str, tuple[int, ...]] = {
    "ScaledDotProductAttention": (0, 1, 2),
    "Attention": (0, 1, 2),
    "GroupQueryAttention": (0, 1, 2),
    "SparseAttention": (0, 1, 2),
    "MultiHeadAttention": (0, 1, 2),
    "DecoderMaskedMultiHeadAttention": (0, 1, 2),
    "com.microsoft.Attention": (),
    "DecoderMaskedSelfAttention": (),
    "QAttention": (),
}


@dataclass(frozen=True, slots=True)
class Attention:
    """One place where attention is computed.

    Attributes:
        node: The fused operator, or the Softmax.
        query: ``[batch, heads, length, head_dim]``; for fused operators in the operator's own layout.
        key: Operand whose last two axes are (sequence, head_dim), or (head_dim, sequence) where ``key_is_transposed``.
        value: ``[batch, heads, sequence, head_dim]``.
        output: The value that holds the result; of the Softmax itself where ``reason`` is given.
        scales: Factors of the scores, in no order.
        masks: In order of application.
        guarded: Whether rows that are masked whole give 0 instead of NaN.
        sink: What joins each row of scores in the Softmax but weighs no value, neither scaled nor masked: one number a
            head, ``[1, heads, 1, 1]`` where leading dimensions may be missing and ``heads`` may be 1.
        key_forms: What is made of the key for the product with the query, each of the one before: converted, scaled,
            transposed, its heads merged into the batch.
        value_forms: The same of the value for the product with the probabilities.
        reason: Why the block is not plain scaled dot-product attention; ``None`` where it is.
    """

    node: Node
    output: Value
    query: Value | None = None
    key: Value | None = None
    value: Value | None = None
    key_is_transposed: bool = False
    scales: tuple[Scale, ...] = ()
    masks: tuple[Mask, ...] = ()
    guarded: bool = False
    sink: Value | None = None
    key_forms: tuple[Value, ...] = ()
    value_forms: tuple[Value, ...] = ()
    reason: str | None = None

    @property
    def is_fused(self) -> bool:
        """Whether one operator computes it."""
        return self.node.op in OPERATORS


def find_attention(model: Model) -> tuple[Attention, ...]:
    """All places where ``model`` computes attention, in execution order.

    A Softmax that is not fed by a product of two computed tensors, or whose result no product reads, is no attention
    (an expert router, a sampler) and is left out.
    """
    graph = model.graph
    found: list[Attention] = []
    for node in graph.nodes:
        if node.op in OPERATORS:
            operands = [node.inputs[port] for port in OPERATORS[node.op] if port < len(node.inputs)]
            query, key, value = (*operands, None, None, None)[:3]
            found.append(Attention(node, node.outputs[0], query, key, value))
        elif node.op == "Softmax" and is_attention(graph, node):
            found.append(_decomposed(graph, node))
    return tuple(found)


def _decomposed(graph: Graph, softmax: Node) -> Attention:
    try:
        parts = match(graph, softmax)
    except NoMatchError as miss:
        return Attention(softmax, softmax.outputs[0], reason=str(miss))
    return Attention(softmax, **{field.name: getattr(parts, field.name) for field in dataclasses.fields(parts)})
