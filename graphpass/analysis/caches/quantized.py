"""Read the quantization of keys and values in caches of GroupQueryAttention.

Source: the operator's schema in ONNX Runtime 1.32, and runs of its CPU kernel. Values are ``round(x / scale)``, clipped
to the range of their bits. Two values of 4 bits share a byte, the first in its low half, with an offset of 8 each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.ir.operators import quantized_bits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.model import Model

#: Input indices of the scales of keys and of values.
_PORTS = (12, 13)

#: Maximum number of elements of a scale: ``heads * head_dim``.
_MOST = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class CacheScale:
    """The scale of one quantized cache.

    Attributes:
        node: Name of the attention node.
        bits: Bits of a value, 8 or 4.
        scale: f32, one element or ``[heads, 1, head_dim]``; ``None`` if it is not a constant.
    """

    node: str
    bits: int
    scale: NDArray[numpy.float32] | None

    @property
    def largest(self) -> NDArray[numpy.float32]:
        """Return the largest representable numbers, f32 in the shape of ``scale``."""
        assert self.scale is not None
        return self.scale * numpy.float32(top_of(self.bits))

    def equals(self, other: CacheScale) -> bool:
        """Return whether ``other`` has the same bits and the same constant scale."""
        if self.scale is None or other.scale is None:
            return False
        return self.bits == other.bits and numpy.array_equal(self.scale, other.scale)

    def rounded(self, content: NDArray[Any]) -> NDArray[numpy.float32]:
        """Return ``content``, ``[.., heads, positions, head_dim]``, quantized and dequantized, in f32."""
        assert self.scale is not None
        return round_cache(content, self.scale, self.bits)


def top_of(bits: int) -> int:
    """Return the largest signed integer of ``bits`` bits."""
    return (1 << (bits - 1)) - 1


def round_cache(content: NDArray[Any], scale: NDArray[numpy.float32], bits: int) -> NDArray[numpy.float32]:
    """Return ``content`` quantized to ``bits`` bits and dequantized, in f32.

    Args:
        content: Keys or values, ``[.., heads, positions, head_dim]``.
        scale: One element, or ``[heads, 1, head_dim]``.
        bits: 8 or 4.
    """
    top = top_of(bits)
    levels = numpy.rint(content.astype(numpy.float32) / scale).clip(-top - 1, top)
    return numpy.asarray(levels * scale, numpy.float32)


def find_cache_scales(model: Model) -> dict[str, CacheScale]:
    """Return the scales of quantized caches by name of the cache."""
    graph = model.graph
    nodes = {node.name: node for node in graph.of_op("GroupQueryAttention") if quantized_bits(node) is not None}
    scales: dict[str, CacheScale] = {}
    blocks = [block for block in analyze_caches(model).attention if block.node in nodes] if nodes else []
    for block in blocks:
        node = nodes[block.node]
        for name, port in zip((block.key, block.value), _PORTS, strict=True):
            scale = graph.constant(node.input(port), _MOST)
            if scale is not None and scale.size > 1:
                scale = scale.reshape(int(node.attributes["kv_num_heads"]), 1, -1)
            if name is not None:
                scales[name] = CacheScale(node.name, quantized_bits(node) or 8, scale)
    return scales
