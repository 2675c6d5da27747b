"""ONNX operators that OpenVINO's frontend does not support, or converts incorrectly."""

from __future__ import annotations

from collections.abc import Iterable

#: Operators that the pass `lower-operators` replaces. Measured on 2026.4.1 against ONNX Runtime 1.31. Correct, and
#: therefore kept: SimplifiedLayerNormalization; SkipLayerNormalization, unless it has a bias and no beta;
#: SkipSimplifiedLayerNormalization in f32; MatMulNBits; GatherBlockQuantized of constants; MultiHeadAttention; ONNX's
#: RotaryEmbedding; and ONNX's Attention (also with nonpad_kv_seqlen), unless keys have fewer heads than queries and the
#: frontend cannot infer both numbers.
LOWERED = frozenset(
    {"Attention", "CausalConvWithState", "GatherBlockQuantized", "GroupQueryAttention", "LinearAttention", "MoE"}
    | {"com.microsoft.Attention", "EmbedLayerNormalization", "QAttention", "QMoE"}
    | {"RotaryEmbedding", "SkipSimplifiedLayerNormalization", "TensorScatter"}
)

#: Reductions whose attribute ``axes`` the frontend ignores from opset 13 to 17 (2026.4.1). In opset 18 it is an input.
UPGRADED = frozenset({"ReduceL1", "ReduceLogSum", "ReduceLogSumExp"})


def lowering_hint(unread: Iterable[str]) -> str | None:
    """Return the hint for unsupported operators; ``None`` unless all can be lowered."""
    operators = set(unread)
    if not operators or not operators <= LOWERED:
        return None
    return "run lower-operators before to-openvino, as graphpass convert --target does"
