"""Name the ONNX operators that OpenVINO's frontend cannot read, or reads badly."""

from __future__ import annotations

from collections.abc import Iterable

#: Operators that the pass `lower-operators` writes in plain ones. Measured on 2026.4.1 against ONNX Runtime 1.31: read
#: right, and left alone, are SimplifiedLayerNormalization, SkipLayerNormalization (but not with a bias and without a
#: beta), SkipSimplifiedLayerNormalization in f32, MatMulNBits, GatherBlockQuantized of constants, MultiHeadAttention,
#: ONNX's RotaryEmbedding and Attention (with nonpad_kv_seqlen, too), unless keys have fewer heads than queries and the
#: frontend does not know both numbers.
LOWERED = frozenset(
    {"Attention", "CausalConvWithState", "GatherBlockQuantized", "GroupQueryAttention", "LinearAttention", "MoE"}
    | {"QMoE", "RotaryEmbedding", "SkipSimplifiedLayerNormalization", "TensorScatter"}
)


def lowering_hint(unread: Iterable[str]) -> str | None:
    """Return the hint for unread operators, if all of them can be lowered."""
    operators = set(unread)
    if not operators or not operators <= LOWERED:
        return None
    return "put lower-operators before to-openvino, as graphpass convert --target does"
