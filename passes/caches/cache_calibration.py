"""Choose scales with which caches are rounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from graphpass.analysis.caches.quantized import rounded, top_of
from graphpass.ir.graph import Graph, Node
from graphpass.ir.values import fixed_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The largest number kept in 8 bits, by the largest in the samples. Scales of 18 decoders from 160 tokens each, on 64
#: others: with 1 rounding takes up to 4 % of a cache, since values are cut, with 1.25 1.5 %, with 1.5 1.1 %.
_ROOM = 1.5

#: Shares of the largest value that are tried as the largest one kept in 4 bits.
_CUTS = tuple(cut / 20 for cut in range(6, 22))

#: A channel's scale is at least this share of its cache's largest: one that was zero in all samples need not stay so.
_LEAST = 1 / 128


@dataclass(frozen=True, slots=True)
class Pairs:
    """Elements of a head that positions rotate, by twos.

    Attributes:
        count: Number of pairs.
        interleaved: Whether they are neighbours; otherwise two halves.
    """

    count: int
    interleaved: bool

    def largest(self, content: NDArray[numpy.float32]) -> NDArray[numpy.float32]:
        """Return the numbers that elements may reach at any position, of ``content [.., head_dim]``."""
        first = numpy.arange(self.count) * (2 if self.interleaved else 1)
        second = first + (1 if self.interleaved else self.count)
        found: NDArray[numpy.float32] = numpy.abs(content)
        found[..., first] = found[..., second] = numpy.hypot(content[..., first], content[..., second])
        return found


def rotated_pairs(graph: Graph, node: Node) -> Pairs | None:
    """Return the pairs that GroupQueryAttention ``node``, or a RotaryEmbedding before its keys, rotates."""
    table, attributes = node.input(7), node.attributes
    if table is None:
        key = node.input(1)
        maker = graph.producer(key) if key is not None else None
        if maker is None or maker.op != "RotaryEmbedding":
            return None
        table, attributes = maker.input(2), maker.attributes
    count = fixed_size(table, -1)
    is_interleaved = bool(attributes.get("rotary_interleaved", attributes.get("interleaved", 0)))
    return Pairs(count, is_interleaved) if count is not None else None


def scale_of(content: NDArray[numpy.float32], bits: int, pairs: Pairs | None) -> NDArray[numpy.float32]:
    """Return a scale for each channel, f32 ``[heads, 1, head_dim]``.

    Args:
        content: Keys or values, ``[heads, positions, head_dim]``.
        bits: 8 or 4.
        pairs: Channels that turn into each other at other positions, so that they share a scale.
    """
    wide = content.astype(numpy.float32)
    largest = (numpy.abs(wide) if pairs is None else pairs.largest(wide)).max(axis=1, keepdims=True)
    largest = numpy.maximum(largest, largest.max() * _LEAST or 1.0)
    top = numpy.float32(top_of(bits))
    if bits == 8:
        return numpy.asarray(largest * _ROOM / top, numpy.float32)
    scales = [largest * cut / top for cut in _CUTS]
    errors = [numpy.square(rounded(wide, scale, bits) - wide).mean(axis=1, keepdims=True) for scale in scales]
    best = numpy.argmin(errors, axis=0)
    return numpy.asarray(numpy.choose(best, scales), numpy.float32)
