"""Lengths as sums of dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Length", "Vector", "divide", "times"]


@dataclass(frozen=True, slots=True)
class Length:
    """A number that is a sum of dimensions: ``constant + sum(factor * symbol)``.

    Attributes:
        terms: Symbols by number, with what each is multiplied by; none with 0.
        constant: What is added.
    """

    terms: frozenset[tuple[int, int]] = frozenset()
    constant: int = 0

    def __add__(self, other: Length) -> Length:
        """The sum."""
        factors = dict(self.terms)
        for symbol, factor in other.terms:
            factors[symbol] = factors.get(symbol, 0) + factor
        return Length(frozenset((s, f) for s, f in factors.items() if f), self.constant + other.constant)

    def times(self, factor: int) -> Length:
        """The product with a number."""
        terms = frozenset((symbol, count * factor) for symbol, count in self.terms) if factor else frozenset()
        return Length(terms, self.constant * factor)

    def __sub__(self, other: Length) -> Length:
        """The difference."""
        return self + other.times(-1)

    @classmethod
    def of(cls, symbol: int) -> Length:
        """The size that a symbol alone stands for."""
        return cls(frozenset({(symbol, 1)}))

    @property
    def symbol(self) -> int | None:
        """The symbol, where it is one alone."""
        terms = tuple(self.terms)
        return terms[0][0] if self.constant == 0 and len(terms) == 1 and terms[0][1] == 1 else None

    @property
    def known(self) -> int | None:
        """The number, where it depends on no dimension."""
        return None if self.terms else self.constant

    @property
    def is_natural(self) -> bool:
        """Whether it is at least 0 whatever the dimensions are."""
        return self.constant >= 0 and all(factor > 0 for _, factor in self.terms)


#: The elements of a small integer tensor, flat, or the dimensions of a tensor.
Vector: TypeAlias = tuple[Length, ...]


def times(one: Length, two: Length) -> Length | None:
    """The product, where one of the factors is known."""
    if one.known is not None:
        return two.times(one.known)
    return one.times(two.known) if two.known is not None else None


def divide(one: Length, two: Length) -> Length | None:
    """The quotient where nothing is lost: truncation and flooring differ only where it is."""
    if not two.known or one.constant % two.known or any(factor % two.known for _, factor in one.terms):
        return None
    terms = frozenset((symbol, factor // two.known) for symbol, factor in one.terms)
    return Length(terms, one.constant // two.known)
