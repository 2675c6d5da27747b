"""Decide signs of integers by the ranges of indices and lengths, without a solver."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

from graphpass.analysis.symbolic.nodes import (
    ONE,
    ZERO,
    Expr,
    Monomial,
    Polynomial,
    from_polynomial,
    length,
    minus,
    number,
    plus,
    polynomial,
    product,
    times,
    total,
)

#: Maximum number of terms of a polynomial whose sign is decided without the solver.
_MOST_TERMS = 64


@lru_cache(maxsize=1 << 14)
def is_natural(expr: Expr) -> bool:
    """Return whether an integer is proven to be at least 0 in every step."""
    while True:
        value = expr.as_number
        if value is not None:
            return value >= 0
        terms = polynomial(expr)
        if len(terms) > _MOST_TERMS:
            return False
        atoms = {atom for monomial in terms for atom in monomial}
        sizes = {atom: size for atom in atoms if (size := _size(atom)) is not None}
        variable = max(sizes, key=lambda atom: atom.order, default=None)
        if variable is None:
            return _is_natural_in_lengths(terms, atoms)
        slope, rest = _split(terms, variable)
        if slope is None:
            return False
        if is_natural(slope):
            expr = rest
        elif is_natural(times(slope, number(-1))):
            expr = plus(rest, times(slope, plus(sizes[variable], number(-1))))
        else:
            return False


def _size(atom: Expr) -> Expr | None:
    """Return the exclusive upper bound of a nonnegative atom; ``None`` without a bound."""
    if atom.op == "read":
        return getattr(atom.args[0], "values", None)
    if atom.op not in {"floor_quotient", "index", "modulo"}:
        return None
    first, size = atom.args[0], cast("Expr", atom.args[1])
    if atom.op == "index":
        return size
    divisor = size.as_number
    if not isinstance(divisor, int) or divisor <= 0:
        return None
    if atom.op == "modulo":
        return size
    dividends = _size(first)
    if dividends is None:
        return None
    known = dividends.as_number
    return number(-(-known // divisor)) if isinstance(known, int) else quotient(dividends, size)


def _split(terms: Polynomial, variable: Expr) -> tuple[Expr | None, Expr]:
    """Return the coefficient of ``variable``, ``None`` if not linear, and the terms without it."""
    slope: Polynomial = {}
    rest: Polynomial = {}
    for monomial, factor in terms.items():
        count = monomial.count(variable)
        if count > 1:
            return None, number(0)
        if count:
            others = tuple(atom for atom in monomial if atom is not variable)
            slope[others] = slope.get(others, 0) + factor
        else:
            rest[monomial] = factor
    return from_polynomial(slope), from_polynomial(rest)


def _is_natural_in_lengths(terms: Polynomial, atoms: set[Expr]) -> bool:
    """Return whether a polynomial is at least 0, by the least values of its atoms."""
    least = {atom: _least(atom) for atom in atoms}
    if None in least.values():
        return False
    expr: Expr = ZERO
    for monomial, factor in terms.items():
        term = number(factor)
        for atom in monomial:
            # Substitute ``excess + least`` for the atom: nonnegative coefficients are then sufficient.
            term = times(term, plus(length(("beyond", atom)), number(least[atom] or 0)))
        expr = plus(expr, term)
    return all(factor >= 0 for factor in polynomial(expr).values())


def _least(atom: Expr, depth: int = 4) -> int | None:
    """Return the least value of an atom; ``None`` if unknown."""
    if atom.op == "length":
        return int(atom.args[1])
    if atom.op == "choose" and depth:
        ends = [_least(branch, depth - 1) if branch.as_number is None else branch.as_number for branch in atom.args[1:]]
        return None if None in ends else min(int(end or 0) for end in ends)
    if atom.op == "floor_quotient":
        return 0 if _is_natural_quotient(*atom.args) else None
    if atom.op == "running_sum":
        return 0 if is_natural(atom.args[0]) else None
    return getattr(atom.args[0], "least", None) if atom.op == "read" else None


def _is_natural_quotient(dividend: Expr, divisor: Expr) -> bool:
    return is_natural(plus(divisor, number(-1))) and is_natural(dividend)


def divided(expr: Expr, divisor: Expr) -> tuple[Expr, Expr] | None:
    """Return quotient and remainder if ranges prove them: ``b * total + k`` by ``total`` is ``b``, ``k``.

    Args:
        expr: Dividend, an integer.
        divisor: Divisor, an integer.

    Returns:
        Both, with a remainder from 0 to ``divisor - 1`` in every step; ``None`` without a proof.
    """
    if divisor is ONE:
        return expr, number(0)
    whole: Expr = number(0)
    remainder = expr
    value = divisor.as_number
    if isinstance(value, int):
        if value <= 0:
            return None
        terms = polynomial(expr)
        exact = {monomial: factor // value for monomial, factor in terms.items() if factor % value == 0}
        exact[()] = terms.get((), 0) // value
        whole = from_polynomial(exact)
        remainder = minus(expr, times(whole, divisor))
    else:
        for atom in sorted({atom for monomial in polynomial(expr) for atom in monomial}, key=lambda expr: -expr.order):
            if atom.op not in {"floor_quotient", "index", "modulo"}:
                continue
            slope, _ = _split(polynomial(expr), atom)
            if slope is not None and slope.as_number is None:
                part = quotient(slope, divisor)
                if part is not None:
                    whole = plus(whole, times(part, atom))
        remainder = minus(expr, times(whole, divisor))
    if is_natural(remainder) and is_natural(minus(minus(divisor, ONE), remainder)):
        return whole, remainder
    return None


def quotient(expr: Expr, divisor: Expr) -> Expr | None:
    """Return the exact quotient of two polynomials, by long division.

    Args:
        expr: Dividend, an integer.
        divisor: Divisor, an integer.

    Returns:
        The quotient; ``None`` if inexact, if the divisor is 0, or if the polynomials are too large.
    """
    if expr is divisor:
        return ONE
    rest, by = dict(polynomial(expr)), polynomial(divisor)
    if not by or len(rest) * len(by) > _MOST_TERMS:
        return None
    atoms = sorted({atom for monomial in (*rest, *by) for atom in monomial}, key=lambda atom: atom.order)

    def degrees(monomial: Monomial) -> tuple[int, ...]:
        return tuple(monomial.count(atom) for atom in atoms)

    lead = max(by, key=degrees)
    terms: Polynomial = {}
    while rest:
        first = max(rest, key=degrees)
        factors = _without(first, lead)
        if factors is None or rest[first] % by[lead]:
            return None
        terms[factors] = rest[first] // by[lead]
        left = total(rest, product({factors: -terms[factors]}, by))
        rest = {monomial: factor for monomial, factor in left.items() if factor}
    return from_polynomial(terms)


def _without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    """Return a monomial divided by ``factors``; ``None`` if it lacks one of them."""
    rest = list(monomial)
    for atom in factors:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)
