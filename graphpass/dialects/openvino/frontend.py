"""Which passes write in plain operators what OpenVINO cannot read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["lowering_hint", "lowerings"]

#: Passes that write operators which OpenVINO's ONNX frontend cannot read, or reads badly, in plain ones. In order:
#: lower-causal-conv finds the mask behind attention that is not lowered yet. Measured on 2026.4.1 against ONNX Runtime
#: 1.31: read right, and left alone, are SimplifiedLayerNormalization, SkipLayerNormalization (but not with a bias and
#: without a beta), SkipSimplifiedLayerNormalization, MatMulNBits, GatherBlockQuantized of constants,
#: MultiHeadAttention, ONNX's RotaryEmbedding, and its Attention, with nonpad_kv_seqlen, too, unless keys have fewer
#: heads than queries and the frontend does not know both numbers.
_LOWERINGS = {
    "lower-causal-conv": {"CausalConvWithState"},
    "lower-group-query-attention": {"GroupQueryAttention"},
    "lower-linear-attention": {"LinearAttention"},
    "lower-quantized-mixture-of-experts": {"QMoE"},
    "lower-mixture-of-experts": {"MoE", "QMoE"},
    "lower-rotary-embedding": {"RotaryEmbedding"},
    "lower-tensor-scatter": {"TensorScatter"},
    "repeat-shared-heads": {"Attention"},
    "reshape-weights": {"GatherBlockQuantized"},
}


def lowerings(operators: Iterable[str]) -> list[str]:
    """The passes that have something to lower in a graph with these operators, in the order in which they run."""
    held = set(operators)
    return [name for name, lowered in _LOWERINGS.items() if lowered & held]


def lowering_hint(unread: Iterable[str], held: Iterable[str]) -> str | None:
    """What to do before `to-openvino`.

    Args:
        unread: The operators that OpenVINO cannot read.
        held: All operators of the graph; others of them may have to be lowered, too.

    Returns:
        The passes to run; ``None`` where one of the operators has none.
    """
    unread = list(unread)
    if not unread or not all(lowerings([operator]) for operator in unread):
        return None
    passes = ",".join(lowerings([*unread, *held]))
    return f"put {passes} before to-openvino, as graphpass convert --target does"
