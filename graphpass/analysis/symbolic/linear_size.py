"""Express sizes linearly, and keep classes of equal dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, TypeAlias

from graphpass.ir.axes import NO_END

Dimension: TypeAlias = Any
"""A dimension of unknown size: any hashable object."""


@dataclass(frozen=True, slots=True)
class Size:
    """A number plus multiples of unknown dimensions: ``batch``, ``past + 3``, ``-2 * heads``.

    Attributes:
        dimensions: Each dimension with its factor, never 0; sorted.
    """

    number: int = 0
    dimensions: tuple[tuple[Dimension, int], ...] = ()

    @classmethod
    def of(cls, dimension: Dimension) -> Size:
        """Return the size that equals ``dimension``."""
        return cls(0, ((dimension, 1),))

    @staticmethod
    @cache
    def constant(number: int) -> Size:
        """Return the size that equals ``number``, one object for each."""
        return Size(number)

    @property
    def as_int(self) -> int | None:
        """Return its value if it has no dimensions."""
        return None if self.dimensions else self.number

    @property
    def as_dimension(self) -> Dimension | None:
        """Return its dimension if it is nothing but one."""
        if self.number == 0 and len(self.dimensions) == 1 and self.dimensions[0][1] == 1:
            return self.dimensions[0][0]
        return None

    @property
    def is_negative(self) -> bool:
        """Return whether it is below 0 for all values of its dimensions."""
        return self != Size() and self.number <= 0 and all(factor < 0 for _, factor in self.dimensions)

    @property
    def is_natural(self) -> bool:
        """Return whether it is at least 0 for all values of its dimensions."""
        return self.number >= 0 and all(factor > 0 for _, factor in self.dimensions)

    def __add__(self, other: Size) -> Size:
        if not other.dimensions:
            return Size(self.number + other.number, self.dimensions)
        factors = dict(self.dimensions)
        for dimension, factor in other.dimensions:
            factors[dimension] = factors.get(dimension, 0) + factor
        left = [(dimension, factor) for dimension, factor in factors.items() if factor]
        if len(left) > 1:
            left.sort(key=repr)
        return Size(self.number + other.number, tuple(left))

    def __mul__(self, factor: int) -> Size:
        if factor == 1:
            return self
        if not factor:
            return Size()
        return Size(self.number * factor, tuple((one, count * factor) for one, count in self.dimensions))

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + -other


#: The sizes of a tensor's axes, or the integers that a small tensor holds, flat.
Vector: TypeAlias = tuple[Size, ...]


def multiply(one: Size, other: Size) -> Size | None:
    """Return the product if a factor is a number."""
    if one.as_int is not None:
        return other * one.as_int
    return one * other.as_int if other.as_int is not None else None


def divide(one: Size, other: Size) -> Size | None:
    """Return the exact quotient by a number: truncation and flooring differ elsewhere."""
    by = other.as_int
    if not by or one.number % by or any(factor % by for _, factor in one.dimensions):
        return None
    return Size(one.number // by, tuple((dimension, factor // by) for dimension, factor in one.dimensions))


def position(size: Size, bound: Size) -> Size:
    """Return the place that a Slice's bound means on an axis of ``size``."""
    if bound.as_int is not None and bound.as_int >= NO_END:
        return size
    return size + bound if bound.is_negative else bound


def remaining(source: Vector, others: list[Size]) -> Size | None:
    """Return the size that ``others`` lack to hold as many elements as ``source``."""
    kept = list(source)
    for size in list(others):
        if size in kept:
            kept.remove(size)
            others.remove(size)
    if any(size.as_int is None for size in others):
        return None
    product: Size | None = Size.constant(1)
    for size in kept:
        product = multiply(product, size) if product is not None else None
    return None if product is None else divide(product, Size.constant(prod(size.as_int or 0 for size in others)))


class Classes:
    """Dimensions that are equal to others, to numbers or to sums."""

    def __init__(self) -> None:
        self._known: dict[Dimension, Size] = {}

    @property
    def joins(self) -> int:
        """Return the number of dimensions that equal something else."""
        return len(self._known)

    def resolve(self, size: Size) -> Size:
        """Return ``size`` in terms of dimensions that equal nothing else."""
        if not size.dimensions:
            return size
        while any(dimension in self._known for dimension, _ in size.dimensions):
            resolved = Size.constant(size.number)
            for dimension, factor in size.dimensions:
                found = self._value(dimension)
                resolved += Size(0, ((dimension, factor),)) if found is None else found * factor
            size = resolved
        return size

    def join(self, one: Size, other: Size) -> None:
        """Note that two sizes are equal, if a dimension follows from that."""
        one, other = self.resolve(one), self.resolve(other)
        difference = one - other
        number, factors = difference.number, [factor for _, factor in difference.dimensions]
        if len(factors) == 1 and number % factors[0] == 0 and -number // factors[0] >= 0:
            self._known[difference.dimensions[0][0]] = Size.constant(-number // factors[0])
        elif number == 0 and sorted(factors) == [-1, 1]:
            (first, factor), (second, _) = difference.dimensions
            # The first operand follows the second.
            self._known[first if factor == 1 else second] = Size.of(second if factor == 1 else first)
        elif len(factors) > 2:
            for dimension, equal in ((one.as_dimension, other), (other.as_dimension, one)):
                if dimension is not None and equal.is_natural and dimension not in dict(equal.dimensions):
                    self._known[dimension] = equal
                    return

    def _value(self, dimension: Dimension) -> Size | None:
        """Return the end of the chain of sizes that ``dimension`` equals."""
        path, found = [], self._known.get(dimension)
        while found is not None and found.as_dimension in self._known:
            path.append(dimension)
            dimension = found.as_dimension
            found = self._known[dimension]
        for passed in path:
            self._known[passed] = found  # type: ignore[assignment]
        return found
