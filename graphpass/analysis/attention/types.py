"""Data classes for attention blocks; `graphpass.analysis.attention.find` lists their forms."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss
from graphpass.ir.values import REALS


@dataclass(frozen=True, slots=True)
class Ports:
    """Input indices and causality of a fused attention operator.

    Attributes:
        operands: Indices of query, key and value; empty if the operator computes them from weights.
        masks: Indices of masks: tensors added to the scores, or boolean tensors that keep scores.
        row_masks: Indices of masks with a row for each of the batch: lengths ``[batch]``, or masks ``[batch, keys]`` or
            ``[batch, queries, keys]``. Other masks are broadcast to ``[batch, heads, queries, keys]``.
        lengths: Indices of row lengths, ``[batch]``, in keys.
        sink: Index of the sink, one logit per head.
        causal: Name of the attribute that makes the mask causal; ``None`` if the operator has no such attribute.
        is_causal: Whether the mask is causal if the attribute is absent.
    """

    operands: tuple[int, ...] = (0, 1, 2)
    masks: tuple[int, ...] = ()
    row_masks: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    sink: int | None = None
    causal: str | None = None
    is_causal: bool = True

    def hides_later(self, node: Node) -> bool:
        """Return whether ``node``, a use of this operator, applies a causal mask."""
        return self.is_causal if self.causal is None else bool(node.attributes.get(self.causal, self.is_causal))


#: Fused attention operators. Sources: onnx.defs for Attention-23 to 25; docs/ContribOperators.md of
#: ONNX Runtime for com.microsoft; OpenVINO's docs for ScaledDotProductAttention-13 and its input 5, the sink.
OPERATORS = {
    "ScaledDotProductAttention": Ports(masks=(3,), sink=5, causal="causal", is_causal=False),
    "Attention": Ports(masks=(3,), lengths=(6,), causal="is_causal", is_causal=False),
    "GroupQueryAttention": Ports(masks=(10,), lengths=(5,), sink=11, causal="causal"),
    "SparseAttention": Ports(lengths=(8,)),
    "MultiHeadAttention": Ports(masks=(4, 5), row_masks=(4,), causal="unidirectional", is_causal=False),
    "DecoderMaskedMultiHeadAttention": Ports(masks=(3, 4), row_masks=(3,)),
    "com.microsoft.Attention": Ports((), masks=(3, 5), row_masks=(3,), causal="unidirectional", is_causal=False),
    "DecoderMaskedSelfAttention": Ports((), masks=(3, 5), row_masks=(3,)),
    "QAttention": Ports((), masks=(5,), row_masks=(5,), causal="unidirectional", is_causal=False),
}

#: Operators whose attributes and row lengths have one meaning.
UNAMBIGUOUS = frozenset(
    {"Attention", "GroupQueryAttention", "MultiHeadAttention", "ScaledDotProductAttention", "com.microsoft.Attention"}
)


@dataclass(frozen=True, slots=True)
class Scale:
    """A factor or divisor of the scores.

    Attributes:
        value: A number, or a tensor with one element.
        divides: Whether the scores are divided by it.
    """

    value: Value | float
    divides: bool

    @property
    def name(self) -> str:
        """Return the name of the tensor, or the number as text."""
        return f"{self.value:g}" if isinstance(self.value, float) else self.value.name

    def factor(self, graph: Graph) -> float | None:
        """Return the number that multiplies the scores; ``None`` if unknown, 0 or not finite."""
        number = self.value if isinstance(self.value, float) else fold_scalar(graph, self.value)
        if not number or not math.isfinite(number):
            return None
        return 1 / number if self.divides else number


@dataclass(frozen=True, slots=True)
class Mask:
    """A tensor added to the scores, or the condition of a Select on the scores.

    Attributes:
        value: The tensor or condition, broadcast to the scores.
        keeps: Whether a true condition keeps a score; ``None`` for an added mask.
        is_subtracted: Whether the tensor is subtracted instead of added.
        scales: Factors applied to the scores after the mask.
        merges_heads: Whether axis 0 of a mask of rank 3 merges batch and heads: ``[batch * heads, 1, sequence]``.
    """

    value: Value
    keeps: bool | None = None
    is_subtracted: bool = False
    scales: tuple[Scale, ...] = ()
    merges_heads: bool = False

    @classmethod
    def of_operator(cls, value: Value) -> Mask:
        """Return the mask of a fused operator: real values are added, booleans keep scores."""
        return cls(value, keeps=None if value.element_type in REALS else True)


@dataclass(frozen=True, slots=True)
class Attention:
    """An attention block.

    Attributes:
        node: The fused operator, or the Softmax.
        output: The result; the output of the Softmax if there is a ``miss``.
        query: ``[batch, heads, length, head_dim]``; fused operators keep their own layout.
        key: Ends with (sequence, head_dim), or (head_dim, sequence) if ``key_is_transposed``.
        value: ``[batch, heads, sequence, head_dim]``.
        scales: Factors of the scores, unordered; with a soft cap, those before its Tanh.
        cap_scales: Factors after the Tanh of a soft cap; ``None`` without a soft cap.
        masks: Masks in order of application.
        guarded: Whether probabilities of fully masked rows are 0 instead of NaN.
        sink: One logit per head in the softmax, neither scaled nor masked; see
            `graphpass.analysis.attention.softmax.sink_of` and `graphpass.analysis.attention.sink_gates`.
        sink_is_negative: Whether ``sink`` stores the negated logits.
        key_forms: Values after ``key``, up to the operand of the product, each computed from the previous value.
        value_forms: Values after ``value``, up to the operand of the product.
        miss: Reason why the block is not a plain scaled dot-product attention.
    """

    node: Node
    output: Value
    query: Value | None = None
    key: Value | None = None
    value: Value | None = None
    key_is_transposed: bool = False
    scales: tuple[Scale, ...] = ()
    cap_scales: tuple[Scale, ...] | None = None
    masks: tuple[Mask, ...] = ()
    guarded: bool = False
    sink: Value | None = None
    sink_is_negative: bool = False
    key_forms: tuple[Value, ...] = ()
    value_forms: tuple[Value, ...] = ()
    miss: Miss | None = None

    @property
    def is_fused(self) -> bool:
        """Return whether the block is one fused operator."""
        return self.node.op in OPERATORS
