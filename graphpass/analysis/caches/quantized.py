"""Read how GroupQueryAttention keeps keys and values in integers.

Source: the operator's schema in ONNX Runtime 1.32, and runs of its CPU kernel: values are ``round(x / scale)``, cut to
the range of their bits; two of 4 bits share a byte, the first in its low half, both raised by 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from graphpass.ir.operators import quantized_bits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.model import Model

#: Inputs with the past and with its scale: keys, then values.
_PORTS = ((3, 12), (4, 13))

#: Most elements of a scale: heads times their size.
_MOST = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class CacheScale:
    """Holds the scale of one cache.

    Attributes:
        node: Name of the attention.
        bits: Bits of a value, 8 or 4.
        scale: f32, one number or ``[heads, 1, head_dim]``; ``None`` if it is no constant.
    """

    node: str
    bits: int
    scale: NDArray[numpy.float32] | None

    @property
    def largest(self) -> NDArray[numpy.float32]:
        """Return the largest numbers that it reaches."""
        assert self.scale is not None
        return self.scale * numpy.float32((1 << (self.bits - 1)) - 1)

    def rounded(self, content: NDArray[Any]) -> NDArray[numpy.float32]:
        """Return what a cache gives back of ``content``, ``[.., heads, positions, head_dim]``."""
        assert self.scale is not None
        return rounded(content, self.scale, self.bits)


def rounded(content: NDArray[Any], scale: NDArray[numpy.float32], bits: int) -> NDArray[numpy.float32]:
    """Return numbers after a way through ``bits`` bits."""
    end = 1 << (bits - 1)
    levels = numpy.rint(content.astype(numpy.float32) / scale).clip(-end, end - 1)
    return numpy.asarray(levels * scale, numpy.float32)


def find_cache_scales(model: Model) -> dict[str, CacheScale]:
    """Return the scales of quantized caches by the names of their past inputs."""
    graph = model.graph
    found: dict[str, CacheScale] = {}
    for node in graph.of_op("GroupQueryAttention"):
        bits = quantized_bits(node)
        for past, port in _PORTS if bits is not None else ():
            source, held = node.input(past), node.input(port)
            scale = graph.constant(held, _MOST) if held is not None else None
            if source is None or bits is None:
                continue
            heads = int(node.attributes["kv_num_heads"])
            if scale is not None and scale.size > 1:
                scale = scale.reshape(heads, 1, -1)
            found[graph.producer(source).name] = CacheScale(node.name, bits, scale)
    return found
