"""Check the sizes of heads for which ONNX Runtime's kernels of GroupQueryAttention are written."""

from __future__ import annotations

from graphpass.ir.graph import Node
from graphpass.ir.values import fixed_size

#: Kernels support multiples of these: sizes of heads, sizes of rotated heads, and rotated pairs
#: (``contrib_ops/cpu/bert/group_query_attention_helper.h``).
HEADS_OF, ROTATED_HEADS_OF, PAIRS_OF = 8, 16, 8

_COSINES = 7


def why_sizes_refused(node: Node, head_dim: int | None) -> str | None:
    """Return the reason if no kernel of ONNX Runtime supports the heads of a GroupQueryAttention.

    Args:
        node: The GroupQueryAttention.
        head_dim: Size of its heads; ``None`` if unknown.
    """
    if head_dim is None:
        return None
    if head_dim % HEADS_OF:
        return f"it has heads of {head_dim}, and its kernels require a multiple of {HEADS_OF}"
    if not node.attributes.get("do_rotary", 0):
        return None
    if head_dim % ROTATED_HEADS_OF:
        return f"it rotates heads of {head_dim}, and its kernels require a multiple of {ROTATED_HEADS_OF}"
    cosines = node.input(_COSINES)
    pairs = None if cosines is None else fixed_size(cosines, -1)
    if pairs is not None and pairs % PAIRS_OF:
        return f"it rotates {pairs} pairs of channels, and its kernels require a multiple of {PAIRS_OF}"
    return None
