"""Parts of an attention; `graphpass.analysis.attention.find` lists the forms."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.ir.graph import Node, Value
from graphpass.ir.pattern import Miss


@dataclass(frozen=True, slots=True)
class Ports:
    """Inputs of an operator that computes attention as a whole.

    Attributes:
        operands: Query, key and value; none if the operator computes these itself.
        masks: Tensors that are added to the scores, or conditions that select them.
        lengths: Numbers of positions.
        sink: One number a head that joins the Softmax.
        is_causal: Attribute that hides keys after the query; ``True`` if they always are.
    """

    operands: tuple[int, ...] = (0, 1, 2)
    masks: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    sink: int | None = None
    is_causal: str | bool = True


#: Operators that compute attention as a whole. Sources: onnx.defs for Attention-23 to 25; docs/ContribOperators.md of
#: ONNX Runtime for com.microsoft; OpenVINO's docs for ScaledDotProductAttention-13 and its input 5, the sink.
OPERATORS = {
    "ScaledDotProductAttention": Ports(masks=(3,), sink=5, is_causal="causal"),
    "Attention": Ports(masks=(3,), lengths=(6,), is_causal="is_causal"),
    "GroupQueryAttention": Ports(masks=(10,), lengths=(5,), sink=11),
    "SparseAttention": Ports(lengths=(8,)),
    "MultiHeadAttention": Ports(masks=(4, 5), is_causal="unidirectional"),
    "DecoderMaskedMultiHeadAttention": Ports(masks=(3, 4)),
    "com.microsoft.Attention": Ports((), masks=(3, 5), is_causal="unidirectional"),
    "DecoderMaskedSelfAttention": Ports((), masks=(3, 5)),
    "QAttention": Ports((), masks=(5,), is_causal="unidirectional"),
}


@dataclass(frozen=True, slots=True)
class Scale:
    """A factor of the scores: ``value``, or its inverse if it ``divides``. All its dimensions are 1."""

    value: Value
    divides: bool


@dataclass(frozen=True, slots=True)
class Mask:
    """A tensor that is added to the scores, or a condition that selects them.

    Attributes:
        value: The added tensor, or the boolean condition.
        keeps: ``True`` if a true condition keeps a score, ``False`` if it masks one, ``None`` for an added mask.
        is_subtracted: Whether ``value`` is subtracted instead of added.
        scales: Factors that apply to the scores after the mask is in them.
        merges_heads: Whether its first of three axes is batch and heads in one, as in ``[batch * heads, 1, sequence]``.
    """

    value: Value
    keeps: bool | None = None
    is_subtracted: bool = False
    scales: tuple[Scale, ...] = ()
    merges_heads: bool = False


@dataclass(frozen=True, slots=True)
class Attention:
    """One computation of attention.

    Attributes:
        node: The fused operator, or the Softmax.
        output: The result; of the Softmax itself if there is a ``miss``.
        query: ``[batch, heads, length, head_dim]``; for fused operators in the operator's own layout.
        key: Operand whose last two axes are (sequence, head_dim), or (head_dim, sequence) if ``key_is_transposed``.
        value: ``[batch, heads, sequence, head_dim]``.
        key_is_transposed: See ``key``.
        scales: Factors of the scores, in no order.
        masks: In order of application.
        guarded: Whether rows that are masked whole give 0 instead of NaN.
        sink: Joins each row of scores in the Softmax but weighs no value, neither scaled nor masked: one number a head,
            ``[1, heads, 1, 1]`` whose leading dimensions may be missing; ``heads`` may be 1.
        key_forms: Forms of the key up to the product with the query, each made of the one before: converted, scaled,
            transposed, its heads merged into the batch.
        value_forms: The same of the value up to the product with the probabilities.
        miss: Why the block is not plain scaled dot-product attention; ``None`` if it is.
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
    miss: Miss | None = None

    @property
    def is_fused(self) -> bool:
        """Return whether one operator computes it."""
        return self.node.op in OPERATORS
