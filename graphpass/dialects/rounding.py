"""Round numbers of f32 to f16, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy

#: Bytes that are read at once.
_PIECE = 2**24

#: The largest number of f16.
LARGEST_HALF = float(numpy.finfo(numpy.float16).max)


def pieces_of(file: Path, offset: int, length: int) -> Iterator[bytes]:
    """Yield a part of a file."""
    with file.open("rb") as stream:
        stream.seek(offset)
        for start in range(0, length, _PIECE):
            yield stream.read(min(_PIECE, length - start))


def rounded(numbers: numpy.ndarray, *, cut: bool = False) -> tuple[numpy.ndarray, bool]:
    """Return numbers in f16, cut to its range or not, and whether any became infinite."""
    if cut:
        numbers = numbers.clip(-LARGEST_HALF, LARGEST_HALF)
    with numpy.errstate(over="ignore"):
        half = numbers.astype("<f2")
    return half, bool((numpy.isinf(half) & numpy.isfinite(numbers)).any())
