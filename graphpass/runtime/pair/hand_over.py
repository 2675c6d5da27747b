"""Move a cache from one layout to another inside one buffer.

A prefill model stores a cache as ``[1, H, P, D]``, the decode model after it as ``[1, H, N, D]``. Both layouts share
one buffer, so a head may move over other heads. A value may be transposed, ``[1, H, D, P]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphpass.errors import UnsupportedError, UsageError

#: Smallest row in bytes for which moving each row is faster than copying all rows twice. Measured for 1024 rows of 1,
#: 2, 4, 8 and 16 KiB per cache: copies take 0.14, 0.3, 0.2, 0.7 and 1.0 times as long.
SHORT = 1 << 14

#: Element types smaller than a byte, of which a row may start inside a byte.
_SUB_BYTE = frozenset({"f4e2m1", "i2", "i4", "nf4", "u1", "u2", "u3", "u4", "u6"})


@dataclass(frozen=True, slots=True)
class Placement:
    """The location of a cache in a buffer, in row-major order without gaps.

    Attributes:
        shape: Dimensions of the cache.
        offset: Index in the buffer of the first element. A part, for example from position 5 on, has its own offset.
    """

    shape: tuple[int, ...]
    offset: int = 0

    def strides(self) -> tuple[int, ...]:
        """Return the stride of each axis in elements."""
        return tuple(prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    def end(self, extent: tuple[int, ...]) -> int:
        """Return the index after the last of the first ``extent`` elements along each axis."""
        last = sum((size - 1) * stride for size, stride in zip(extent, self.strides(), strict=True))
        return self.offset + last + 1


def hand_over(
    buffer: NDArray[Any],
    source: Placement,
    destination: Placement,
    extent: tuple[int, ...],
    element_type: str | None = None,
    *,
    short: int = SHORT,
) -> int:
    """Move the first ``extent`` elements along each axis of a cache to another layout.

    Trailing axes of equal size in both layouts and the extent form one row with the axis before them. A row is moved as
    by ``memmove``.

    Rows have the same order in both layouts and do not overlap within a layout. A row that moves up can therefore
    overwrite only later rows that move up, and a row that moves down only earlier rows that move down. So rows that
    move up are moved last to first, and rows that move down first to last, for any offsets and sizes.

    Short rows, such as those of transposed values, are moved by a copy of all rows: moving each takes longer than
    copying it twice.

    Args:
        buffer: A C-contiguous, writable array of any shape. Only the destination's extent is written.
        source: Current location of the cache.
        destination: New location, of the same rank.
        extent: Number of elements to move along each axis, for example ``(1, heads, length, head_dim)``.
        element_type: OpenVINO's short name, required if the buffer has another dtype (packed types in bytes).
        short: Rows of fewer bytes are moved by a copy of all rows.

    Returns:
        Number of bytes moved.

    Raises:
        UnsupportedError: GP390, elements are smaller than a byte.
        UsageError: GP265, the extent exceeds a placement, or a placement exceeds the buffer.
    """
    name = element_type or buffer.dtype.name
    if name in _SUB_BYTE or name.startswith(("int4", "uint4", "int2", "uint2", "float4")):
        raise UnsupportedError(
            "GP390",
            f"a cache of type {name} cannot be transferred in place: its elements share bytes",
            "keep the cache in a type of whole bytes, for example i8 or f16",
        )
    _check(buffer, source, destination, extent)
    if 0 in extent or source == destination:
        return 0
    outer, row = _folded(source, destination, extent)
    size = buffer.itemsize
    length = row * size
    if length < short:
        _view(buffer, destination, extent)[...] = _view(buffer, source, extent).copy()
        return prod(extent) * size
    starts = _starts(source, extent[:outer])
    targets = _starts(destination, extent[:outer])
    up, down = np.flatnonzero(targets > starts)[::-1], np.flatnonzero(targets < starts)
    order = np.concatenate([up, down])
    # Assignment to a slice of a memoryview is a memmove: faster than ctypes, and checked to be inside the buffer.
    data = buffer.reshape(-1).view(np.uint8).data
    for start, target in zip((starts[order] * size).tolist(), (targets[order] * size).tolist(), strict=True):
        data[target : target + length] = data[start : start + length]
    return len(order) * length


def _view(buffer: NDArray[Any], placement: Placement, extent: tuple[int, ...]) -> NDArray[Any]:
    """Return the first ``extent`` elements along each axis of a cache in ``buffer``."""
    strides = [stride * buffer.itemsize for stride in placement.strides()]
    return np.lib.stride_tricks.as_strided(buffer.reshape(-1)[placement.offset :], extent, strides)


def _check(buffer: NDArray[Any], source: Placement, destination: Placement, extent: tuple[int, ...]) -> None:
    if not (buffer.flags.c_contiguous and buffer.flags.writeable):
        raise UsageError("GP265", "the buffer must be C-contiguous and writable")
    for name, placement in (("source", source), ("destination", destination)):
        shape = placement.shape
        if len(shape) != len(extent) or any(most < size or size < 0 for most, size in zip(shape, extent, strict=True)):
            raise UsageError("GP265", f"{list(extent)} elements do not fit into the {name} {list(shape)}")
        if placement.offset < 0 or (0 not in extent and placement.end(extent) > buffer.size):
            raise UsageError(
                "GP265",
                f"the {name} {list(shape)} at element {placement.offset} does not fit into a buffer of {buffer.size}",
            )


def _folded(source: Placement, destination: Placement, extent: tuple[int, ...]) -> tuple[int, int]:
    """Merge trailing axes to one row.

    Returns:
        The number of other axes, and the number of elements in a row.
    """
    outer, row = len(extent), 1
    while outer:
        outer -= 1
        row *= extent[outer]
        if not source.shape[outer] == destination.shape[outer] == extent[outer]:
            break
    return outer, row


def _starts(placement: Placement, counts: tuple[int, ...]) -> NDArray[np.int64]:
    starts = np.full(1, placement.offset, np.int64)
    for count, stride in zip(counts, placement.strides(), strict=False):
        starts = (starts[:, None] + np.arange(count, dtype=np.int64) * stride).reshape(-1)
    return starts
