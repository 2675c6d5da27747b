"""Decide signs of integers by the ranges of their indices and lengths; sufficient, cheap, without a solver."""

from __future__ import annotations

from functools import lru_cache

from graphpass.analysis.symbolic.expressions import (
    ONE,
    Expr,
    Polynomial,
    add,
    from_polynomial,
    length,
    multiply,
    number,
    polynomial,
    substitute,
    subtract,
)

#: More terms are left to the solver.
_MOST_TERMS = 64


@lru_cache(maxsize=1 << 14)
def is_natural(expr: Expr) -> bool:
    """Return whether an integer is shown to be at least 0, whatever the step."""
    while True:
        value = expr.as_number
        if value is not None:
            return value >= 0
        terms = polynomial(expr)
        if len(terms) > _MOST_TERMS:
            return False
        atoms = {atom for monomial in terms for atom in monomial}
        variable = max((atom for atom in atoms if atom.op == "index"), key=lambda atom: atom.serial, default=None)
        if variable is None:
            return _is_natural_in_lengths(terms, atoms)
        slope, rest = _split(terms, variable)
        if slope is None:
            return False
        if is_natural(slope):
            expr = rest
        elif is_natural(multiply(number(-1), slope)):
            expr = add(rest, multiply(slope, subtract(variable.args[1], ONE)))
        else:
            return False


def _split(terms: Polynomial, variable: Expr) -> tuple[Expr | None, Expr]:
    """Return the factor of ``variable`` if it occurs linearly, and the terms without it."""
    slope: Polynomial = {}
    rest: Polynomial = {}
    for monomial, factor in terms.items():
        times = monomial.count(variable)
        if times > 1:
            return None, number(0)
        if times:
            others = tuple(atom for atom in monomial if atom is not variable)
            slope[others] = slope.get(others, 0) + factor
        else:
            rest[monomial] = factor
    return from_polynomial(slope), from_polynomial(rest)


def _is_natural_in_lengths(terms: Polynomial, atoms: set[Expr]) -> bool:
    """Return whether a polynomial of lengths is: of what they exceed their least values by."""
    if any(atom.op not in {"length", "running_sum", "modulo"} for atom in atoms):
        return False
    shifted = {
        atom: add(length(f"{atom.args[0]} beyond"), number(atom.args[1]))
        for atom in atoms
        if atom.op == "length" and atom.args[1]
    }
    expr = substitute(from_polynomial(terms), shifted) if shifted else from_polynomial(terms)
    if any(atom.op == "modulo" and not isinstance(atom.args[1].as_number, int) for atom in atoms):
        return False
    return all(factor >= 0 for factor in polynomial(expr).values())


def divided(expr: Expr, divisor: Expr) -> tuple[Expr, Expr] | None:
    """Return quotient and remainder if ranges show them: ``b * total + k`` by ``total`` is ``b`` and ``k``."""
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
        remainder = subtract(expr, multiply(whole, divisor))
    else:
        for atom in sorted({atom for monomial in polynomial(expr) for atom in monomial}, key=lambda one: -one.serial):
            if atom.op != "index":
                continue
            slope, _ = _split(polynomial(expr), atom)
            if slope is not None and slope.as_number is None:
                times = quotient(slope, divisor)
                if times is not None:
                    whole = add(whole, multiply(times, atom))
        remainder = subtract(expr, multiply(whole, divisor))
    if is_natural(remainder) and is_natural(subtract(subtract(divisor, ONE), remainder)):
        return whole, remainder
    return None


def quotient(expr: Expr, divisor: Expr) -> Expr | None:
    """Return the exact quotient of two polynomials if it or the divisor is a monomial."""
    if expr is divisor:
        return ONE
    if not polynomial(divisor):
        return None
    (lead, factor), *further = polynomial(divisor).items()
    found: Polynomial = {}
    for monomial, own in polynomial(expr).items():
        rest = list(monomial)
        if own % factor or any(atom not in rest or rest.remove(atom) for atom in lead):
            if further:
                continue
            return None
        found[tuple(rest)] = own // factor
        times = from_polynomial({tuple(rest): own // factor})
        if further and multiply(times, divisor) is expr:
            return times
    return None if further else from_polynomial(found)
