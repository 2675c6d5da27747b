"""Sizes as linear expressions of dimensions, and equalities between them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.expressions import Expr, number, substitute, subtract
from graphpass.analysis.symbolic.nodes import from_polynomial, length, polynomial, walk

#: The sizes of a tensor's axes, or the integers of a small tensor in row-major order.
Vector: TypeAlias = tuple[Expr, ...]


def dimension(name: Hashable) -> Expr:
    """Return a variable for an unknown size, at least 0."""
    return length(("dimension", name))


def dimension_name(expr: Expr) -> Hashable:
    """Return the name that a `dimension` was made with."""
    name: Hashable = expr.args[0][1]
    return name


def as_dimension(size: Expr) -> Expr | None:
    """Return ``size`` if it is a single dimension; ``None`` otherwise."""
    return size if size.op == "length" else None


def dimensions(size: Expr) -> list[tuple[Expr, int]]:
    """Return the dimensions of a linear size with their factors, sorted by name."""
    terms = [(monomial[0], factor) for monomial, factor in polynomial(size).items() if monomial]
    return sorted(terms, key=lambda term: repr(term[0].args[0])) if len(terms) > 1 else terms


def offset(size: Expr) -> int:
    """Return the constant term of a size."""
    return polynomial(size).get((), 0)


def is_linear(size: Expr) -> bool:
    """Return whether ``size`` is a constant plus multiples of dimensions."""
    return all(len(monomial) <= 1 and all(atom.op == "length" for atom in monomial) for monomial in polynomial(size))


def size_at(size: Expr, number: Callable[[Expr], int]) -> int:
    """Return the value of a linear size.

    Args:
        size: A constant plus multiples of dimensions, see `is_linear`.
        number: Returns the value of a dimension.
    """
    return offset(size) + sum(number(dimension) * factor for dimension, factor in dimensions(size))


def is_negative(size: Expr) -> bool:
    """Return whether a bound counts from the end: all its coefficients are negative."""
    terms = polynomial(size)
    return bool(terms) and all(factor < 0 for factor in terms.values())


class EqualSizes:
    """Equalities of dimensions with other dimensions, numbers or sums."""

    def __init__(self) -> None:
        self._known: dict[Expr, Expr] = {}
        #: Cache of resolved sizes, cleared by each new equality.
        self._resolved: dict[Expr, Expr] = {}

    @property
    def joins(self) -> int:
        """Return the number of recorded equalities."""
        return len(self._known)

    def pairs(self) -> tuple[tuple[Expr, Expr], ...]:
        """Return the recorded equalities."""
        return tuple(self._known.items())

    def is_joined(self, size: Expr) -> bool:
        """Return whether a dimension equals another size."""
        return size in self._known or any(size in self._atoms(equal) for equal in self._known.values())

    def resolve(self, size: Expr) -> Expr:
        """Return ``size`` with dimensions replaced by their equal expressions."""
        if size.op == "number":
            return size
        known = self._resolved.get(size)
        if known is None:
            known = self._resolved[size] = self._resolve(size)
        return known

    def _resolve(self, size: Expr) -> Expr:
        while size.op != "number":
            known = {atom: self._end(atom) for atom in self._atoms(size) if atom in self._known}
            if not known:
                break
            size = substitute(size, known)
        return size

    def _atoms(self, size: Expr) -> set[Expr]:
        if size.op == "length":
            return {size}
        if is_linear(size):
            return {monomial[0] for monomial in polynomial(size) if monomial}
        return {part for part in walk(size) if part.op == "length"}

    def _end(self, atom: Expr) -> Expr:
        """Return the end of the chain of sizes that a dimension equals."""
        path, end = [], self._known[atom]
        while end in self._known:
            path.append(atom)
            atom = end
            end = self._known[atom]
        for passed in path:
            self._known[passed] = end
        return end

    def join(self, left: Expr, right: Expr) -> None:
        """Record that two sizes are equal, if this determines a dimension.

        Args:
            left: A size; if both are single dimensions, it is replaced by ``right``.
            right: The other size.
        """
        if left is right:
            return
        left, right = self.resolve(left), self.resolve(right)
        terms = polynomial(subtract(left, right))
        constant = terms.pop((), 0)
        factors = list(terms.values())
        is_sum = is_linear(from_polynomial(terms))
        if len(factors) == 1 and is_sum and constant % factors[0] == 0 and -constant // factors[0] >= 0:
            self._note(next(iter(terms))[0], number(-constant // factors[0]))
        elif constant == 0 and is_sum and sorted(factors) == [-1, 1]:
            # The dimension of ``left`` is replaced by that of ``right``.
            (first,), (second,) = sorted(terms, key=lambda monomial: -terms[monomial])
            self._note(first, second)
        elif len(factors) > 2 or not is_sum:
            for own, equal in ((left, right), (right, left)):
                if own.op == "length" and is_natural(equal) and own not in self._atoms(equal):
                    self._note(own, equal)
                    return

    def _note(self, atom: Expr, equal: Expr) -> None:
        self._known[atom] = equal
        self._resolved.clear()
