"""Integers of 4 bits, two in a byte.

ONNX, OpenVINO and MatMulNBits store the first in the lower bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Element types of 4 bits.
FOUR_BITS = frozenset({"i4", "u4"})


def packed(numbers: NDArray[numpy.uint8], bits: int = 4) -> NDArray[numpy.uint8]:
    """Return integers as bytes: pairs of 4-bit integers, the first in the lower bits.

    Args:
        numbers: u8, integers from 0 to ``2**bits - 1``; pairs are along the last axis, padded with 0 to an even size.
        bits: Bits of an integer, 4 or 8; 8-bit integers are returned unchanged.

    Returns:
        u8 ``[..., (n + 1) // 2]`` for ``[..., n]`` of 4 bits; ``numbers`` of 8 bits.
    """
    if bits == 8:
        return numbers
    even = numpy.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, numbers.shape[-1] % 2)])
    return numpy.ascontiguousarray(even[..., ::2] | even[..., 1::2] << 4)


def unpacked(stored: NDArray[numpy.uint8], bits: int = 4) -> NDArray[numpy.uint8]:
    """Return the integers in `packed` bytes, including the padding of the last pair.

    Args:
        stored: u8, bytes with pairs along the last axis.
        bits: As for `packed`.

    Returns:
        u8 ``[..., 2 * n]`` for ``[..., n]`` of 4 bits; ``stored`` of 8 bits.
    """
    if bits == 8:
        return stored
    return numpy.stack([stored & 15, stored >> 4], axis=-1).reshape(*stored.shape[:-1], -1)


def numbers_of(stored: NDArray[numpy.integer], element_type: str, shape: Sequence[int]) -> NDArray[numpy.integer]:
    """Return the integers of a tensor in `FOUR_BITS`.

    Args:
        stored: The bytes of the tensor, flat, i8 or u8.
        element_type: ``i4`` or ``u4``.
        shape: Shape of the tensor.

    Returns:
        i8 or u8, in ``shape``.
    """
    numbers = unpacked(stored.view(numpy.uint8))[: math.prod(shape)].reshape(shape)
    return numbers if element_type == "u4" else (numbers ^ 8).astype(numpy.int8) - 8
