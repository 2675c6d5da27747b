"""`Size`: how many entries a tensor has along an axis, where that is not a plain number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["Classes", "Dimension", "Size", "Vector", "divide", "multiply"]

Dimension: TypeAlias = Any
"""What stands for a dimension of unknown size: anything that can be hashed."""


@dataclass(frozen=True, slots=True)
class Size:
    """A sum of a number and of dimensions that nothing more is known of: ``batch``, ``past + 3``, ``-2 * heads``.

    Attributes:
        number: The plain part.
        dimensions: By dimension how many times it is counted, never 0; sorted.
    """

    number: int = 0
    dimensions: tuple[tuple[Dimension, int], ...] = ()

    @classmethod
    def of(cls, dimension: Dimension) -> Size:
        """The size that is ``dimension``."""
        return cls(0, ((dimension, 1),))

    @property
    def plain(self) -> int | None:
        """The number that it is; ``None`` where it is not only a number."""
        return None if self.dimensions else self.number

    @property
    def dimension(self) -> Dimension | None:
        """The dimension that it is; ``None`` where it is anything else."""
        if self.number == 0 and len(self.dimensions) == 1 and self.dimensions[0][1] == 1:
            return self.dimensions[0][0]
        return None

    @property
    def is_negative(self) -> bool:
        """Whether it is below 0, whatever its dimensions."""
        return self != Size() and self.number <= 0 and all(count < 0 for _, count in self.dimensions)

    @property
    def is_natural(self) -> bool:
        """Whether it is at least 0, whatever its dimensions."""
        return self.number >= 0 and all(count > 0 for _, count in self.dimensions)

    def __add__(self, other: Size) -> Size:
        counts = dict(self.dimensions)
        for dimension, count in other.dimensions:
            counts[dimension] = counts.get(dimension, 0) + count
        left = tuple(sorted(((one, count) for one, count in counts.items() if count), key=repr))
        return Size(self.number + other.number, left)

    def __mul__(self, factor: int) -> Size:
        if not factor:
            return Size()
        return Size(self.number * factor, tuple((one, count * factor) for one, count in self.dimensions))

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + -other


#: The sizes of a tensor's dimensions, or the integers that a small tensor holds, flat.
Vector: TypeAlias = tuple[Size, ...]


def multiply(one: Size, other: Size) -> Size | None:
    """The product, where one of the factors is a number."""
    if one.plain is not None:
        return other * one.plain
    return one * other.plain if other.plain is not None else None


def divide(one: Size, other: Size) -> Size | None:
    """The quotient by a number where nothing is lost: truncation and flooring differ only where it is."""
    by = other.plain
    if not by or one.number % by or any(count % by for _, count in one.dimensions):
        return None
    return Size(one.number // by, tuple((dimension, count // by) for dimension, count in one.dimensions))


class Classes:
    """Which dimensions are the same, or one of them is 1: those of operands that are combined element by element."""

    def __init__(self) -> None:
        """Create classes of one dimension each."""
        self._parents: dict[Dimension, Dimension] = {}
        self._numbers: dict[Dimension, int] = {}

    def resolve(self, size: Size) -> Size:
        """``size`` in terms of each class's first dimension, or of its number where one is known."""
        resolved = Size(size.number)
        for dimension, count in size.dimensions:
            first = self._first(dimension)
            number = self._numbers.get(first)
            resolved += (Size.of(first) if number is None else Size(number)) * count
        return resolved

    def join(self, one: Size, other: Size) -> None:
        """Take two sizes for the same, where each is a dimension or a number."""
        one, other = self.resolve(one), self.resolve(other)
        if one.dimension is None:
            one, other = other, one
        if one.dimension is None or one == other:
            return
        if other.dimension is not None:
            self._parents[one.dimension] = other.dimension
        elif other.plain is not None:
            self._numbers[one.dimension] = other.plain

    def _first(self, dimension: Dimension) -> Dimension:
        while dimension in self._parents:
            dimension = self._parents[dimension]
        return dimension
