"""Round numbers of f32 to types of 16 bits, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import numpy

Half: TypeAlias = Literal["f16", "bf16"]
"""A type of 16 bits."""

#: Bytes that are read at once.
_PIECE = 2**24

#: The most that rounding moves a number, relative to it, as an exponent of 2.
MOVES_BY: dict[Half, int] = {"bf16": -8, "f16": -11}

#: The largest number of each type.
LARGEST: dict[Half, float] = {"f16": float(numpy.finfo(numpy.float16).max), "bf16": (2 - 2**-7) * 2.0**127}


def pieces_of(file: Path, offset: int, length: int) -> Iterator[bytes]:
    """Yield a part of a file."""
    with file.open("rb") as stream:
        stream.seek(offset)
        for start in range(0, length, _PIECE):
            yield stream.read(min(_PIECE, length - start))


def rounded(numbers: numpy.ndarray, half: Half, *, cut: bool = False) -> tuple[bytes, bool]:
    """Return the bytes of numbers of f32 in ``half``, and whether finite ones became infinite.

    Args:
        numbers: The numbers.
        half: The type; ties go to even numbers.
        cut: Whether to cut them to its range first.
    """
    numbers = numbers.astype(numpy.float32, copy=False)
    if cut:
        numbers = numbers.clip(-LARGEST[half], LARGEST[half])
    if half == "f16":
        with numpy.errstate(over="ignore"):
            made = numbers.astype("<f2")
        return made.tobytes(), bool((numpy.isinf(made) & numpy.isfinite(numbers)).any())
    bits = numpy.ascontiguousarray(numbers).view(numpy.uint32)
    upper = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
    # The sum would carry into the sign of a NaN, or make an infinity of it.
    upper = numpy.where(numpy.isnan(numbers), bits >> 16 | 0x40, upper).astype("<u2")
    infinite = (upper & 0x7FFF) == 0x7F80
    return upper.tobytes(), bool((infinite & numpy.isfinite(numbers)).any())
