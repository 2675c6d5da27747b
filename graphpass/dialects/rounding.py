"""Rounding of f32 values to types of 16 bits, in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import numpy

Half: TypeAlias = Literal["f16", "bf16"]
"""A floating-point type of 16 bits."""

#: Bytes that are read at a time.
_PIECE = 2**24

#: Maximum relative rounding error of each type, as an exponent of 2.
MOVES_BY: dict[Half, int] = {"bf16": -8, "f16": -11}

#: Largest finite value of each type.
LARGEST: dict[Half, float] = {"f16": float(numpy.finfo(numpy.float16).max), "bf16": (2 - 2**-7) * 2.0**127}


def pieces_of(file: Path, offset: int, length: int) -> Iterator[bytes]:
    """Yield a range of a file in chunks.

    Args:
        file: The file, open until the last chunk is read.
        offset: Offset of the first byte.
        length: Number of bytes.
    """
    with file.open("rb") as stream:
        stream.seek(offset)
        for start in range(0, length, _PIECE):
            yield stream.read(min(_PIECE, length - start))


def rounded_bytes(numbers: numpy.ndarray, half: Half, *, cut: bool = False) -> tuple[bytes, bool]:
    """Return the bytes of f32 values rounded to ``half``, and whether finite values became infinite.

    Args:
        numbers: The values, in any shape; other types are converted to f32 first.
        half: The type; ties round to even.
        cut: Whether to clip values to the range of the type first.
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
    # The sum could carry into the sign bit of a NaN, or turn a NaN into an infinity.
    upper = numpy.where(numpy.isnan(numbers), bits >> 16 | 0x40, upper).astype("<u2")
    infinite = (upper & 0x7FFF) == 0x7F80
    return upper.tobytes(), bool((infinite & numpy.isfinite(numbers)).any())
