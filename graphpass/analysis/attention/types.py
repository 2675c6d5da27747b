"""Define the parts of an attention; `graphpass.analysis.attention.find` lists the forms."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss
from graphpass.ir.values import REALS


@dataclass(frozen=True, slots=True)
class Ports:
    """Inputs of an operator that computes attention as a whole.

    Attributes:
        operands: Query, key and value; none if the operator computes them itself.
        masks: Tensors added to the scores, or conditions that select them.
        lengths: Numbers of positions.
        sink: One number a head that joins the Softmax.
        causal: Attribute that hides keys after the query; ``None`` if there is none, and they are always hidden.
        is_causal: Whether they are hidden without the attribute.
    """

    operands: tuple[int, ...] = (0, 1, 2)
    masks: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    sink: int | None = None
    causal: str | None = None
    is_causal: bool = True

    def hides_later(self, node: Node) -> bool:
        """Return whether ``node``, of this operator, hides keys after the query by itself."""
        return self.is_causal if self.causal is None else bool(node.attributes.get(self.causal, self.is_causal))


#: Operators that compute attention as a whole. Sources: onnx.defs for Attention-23 to 25; docs/ContribOperators.md of
#: ONNX Runtime for com.microsoft; OpenVINO's docs for ScaledDotProductAttention-13 and its input 5, the sink.
OPERATORS = {
    "ScaledDotProductAttention": Ports(masks=(3,), sink=5, causal="causal", is_causal=False),
    "Attention": Ports(masks=(3,), lengths=(6,), causal="is_causal", is_causal=False),
    "GroupQueryAttention": Ports(masks=(10,), lengths=(5,), sink=11, causal="causal"),
    "SparseAttention": Ports(lengths=(8,)),
    "MultiHeadAttention": Ports(masks=(4, 5), causal="unidirectional", is_causal=False),
    "DecoderMaskedMultiHeadAttention": Ports(masks=(3, 4)),
    "com.microsoft.Attention": Ports((), masks=(3, 5), causal="unidirectional", is_causal=False),
    "DecoderMaskedSelfAttention": Ports((), masks=(3, 5)),
    "QAttention": Ports((), masks=(5,), causal="unidirectional", is_causal=False),
}

#: Operators with one meaning of attributes and lengths.
UNAMBIGUOUS = frozenset({"Attention", "GroupQueryAttention", "MultiHeadAttention", "ScaledDotProductAttention"})


@dataclass(frozen=True, slots=True)
class Scale:
    """A factor of the scores: a number, a tensor of one element, or its inverse."""

    value: Value | float
    divides: bool

    @property
    def name(self) -> str:
        """Name of the tensor, or the number."""
        return f"{self.value:g}" if isinstance(self.value, float) else self.value.name

    def factor(self, graph: Graph) -> float | None:
        """Return the number that scores are multiplied by; ``None`` if it is not known."""
        number = self.value if isinstance(self.value, float) else fold_scalar(graph, self.value)
        if not number or not math.isfinite(number):
            return None
        return 1 / number if self.divides else number


@dataclass(frozen=True, slots=True)
class Mask:
    """A tensor added to the scores, or a condition that selects them.

    Attributes:
        keeps: Whether a true condition keeps a score; ``None`` for an added mask.
        scales: Factors applied to the scores after the mask.
        merges_heads: Whether its first of three axes merges batch and heads: ``[batch * heads, 1, sequence]``.
    """

    value: Value
    keeps: bool | None = None
    is_subtracted: bool = False
    scales: tuple[Scale, ...] = ()
    merges_heads: bool = False

    @classmethod
    def of_operator(cls, value: Value) -> Mask:
        """Return a mask that an operator takes: numbers to add, or booleans that keep scores."""
        return cls(value, keeps=None if value.element_type in REALS else True)


@dataclass(frozen=True, slots=True)
class Attention:
    """One computation of attention.

    Attributes:
        node: The fused operator, or the Softmax.
        output: The result; the Softmax's own if there is a ``miss``.
        query: ``[batch, heads, length, head_dim]``; fused operators keep their own layout.
        key: Ends with (sequence, head_dim), or (head_dim, sequence) if ``key_is_transposed``.
        value: ``[batch, heads, sequence, head_dim]``.
        scales: Factors of the scores, in no order; those before the soft cap if there is one.
        cap_scales: Factors after the Tanh of a soft cap; ``None`` without one.
        masks: In order of application.
        guarded: Whether fully masked rows give 0 instead of NaN.
        sink: One number a head that joins the Softmax, neither scaled nor masked; see
            `graphpass.analysis.attention.softmax.sink_of` and `graphpass.analysis.attention.sink_gates`.
        sink_is_negative: Whether ``sink`` holds the number negated.
        key_forms: Forms up to the product, each made of the one before; ``value_forms`` likewise.
        miss: Reason that this is not a plain scaled dot-product attention.
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
        """Return whether one operator computes it."""
        return self.node.op in OPERATORS
