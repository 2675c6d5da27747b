"""Arithmetic of integers, which are polynomials, and of real numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable

from graphpass.analysis.symbolic.conditions import as_integer, over_choices
from graphpass.analysis.symbolic.nodes import (
    ONE,
    ZERO,
    Expr,
    Polynomial,
    Sort,
    from_polynomial,
    make,
    number,
    polynomial,
    product,
    total,
    uses,
)


def apply(function: str, operands: Iterable[Expr], sort: Sort = "real") -> Expr:
    """Return an uninterpreted function of numbers; ``exp(-inf)`` is 0.

    Args:
        function: Name of the function, such as ``exp`` or ``power``.
        operands: Arguments of the function, in order.
        sort: Type of the result.
    """
    arguments = tuple(operands)
    if function == "exp" and arguments[0].as_number == -math.inf:
        return number(0.0)
    return make("apply", (function, *arguments), sort)


def running_sum(body: Expr, bound: Expr, upper: Expr) -> Expr:
    """Return the sum of a term over an index from 0 on.

    Args:
        body: The term, an integer expression of ``bound``.
        bound: Index variable to sum over.
        upper: Last value of ``bound``, inclusive.
    """
    value = body.as_number
    if isinstance(value, int) and body.sort == "int":
        return multiply(body, add(upper, ONE))
    return make("running_sum", (body, bound, upper), "int")


def add(*operands: Expr) -> Expr:
    """Return the sum; booleans count as 0 and 1."""
    terms = [as_integer(operand) for operand in operands if operand is not ZERO]
    if len(terms) < 2:
        return terms[0] if terms else ZERO
    if all(term.op == "number" and term.sort == "int" for term in terms):
        return number(sum(term.args[0] for term in terms))
    if len(terms) == 2 and (result := over_choices(add, *terms)) is not None:
        return result
    if all(term.sort == "int" for term in terms):
        return from_polynomial(total(*map(polynomial, terms)))
    flat = [part for term in terms for part in (term.args if term.op == "real_sum" else (term,))]
    constants = [part.args[0] for part in flat if part.op == "number"]
    constant = math.fsum(constants) if all(map(math.isfinite, constants)) else sum(constants)
    rest = sorted((part for part in flat if part.op != "number"), key=lambda part: part.order)
    kept = [*rest, number(constant)] if constant or not rest else rest
    return kept[0] if len(kept) == 1 else make("real_sum", tuple(kept), "real")


def multiply(left: Expr, right: Expr) -> Expr:
    """Return the product; booleans count as 0 and 1.

    Args:
        left: A factor of any sort.
        right: The other factor, of any sort.
    """
    left, right = as_integer(left), as_integer(right)
    if (result := over_choices(multiply, left, right)) is not None:
        return result
    if ZERO in (left, right) and not uses((left, right), "partial"):
        return ZERO
    if ONE in (left, right):
        return right if left is ONE else left
    if left.sort == right.sort == "int":
        factors = polynomial(left), polynomial(right)
        if _is_large(*factors):
            return make("product", tuple(sorted((left, right), key=lambda operand: operand.order)), "int")
        return from_polynomial(product(*factors))
    if left.op == right.op == "number":
        return number(left.args[0] * right.args[0])
    for factor, rest in ((left, right), (right, left)):
        constants = [part for part in rest.args if part.op == "number"] if rest.op == "product" else []
        if factor.op == "number" and constants:
            (others,) = (part for part in rest.args if part.op != "number")
            return multiply(number(factor.args[0] * constants[0].args[0]), others)
    return make("product", tuple(sorted((left, right), key=lambda operand: operand.order)), "real")


#: Limits of expanded products of integers: degree, number of terms, bits of coefficients. Sizes of an untrusted graph
#: may grow exponentially by repeated squares. The largest numbers of f32 have 128 bits.
_MOST_FACTORS, _MOST_TERMS, _MOST_BITS = 8, 256, 256


def _is_large(left: Polynomial, right: Polynomial) -> bool:
    """Return whether the product of two polynomials exceeds the limits of expansion."""
    degrees, bits = (
        [max(map(measure, parts), default=0) for parts in (left.items(), right.items())]
        for measure in (lambda term: len(term[0]), lambda term: term[1].bit_length())
    )
    return sum(degrees) > _MOST_FACTORS or sum(bits) > _MOST_BITS or len(left) * len(right) > _MOST_TERMS


def negative(operand: Expr) -> Expr:
    """Return the negative."""
    if operand.sort == "int" and operand.op != "choose":
        return from_polynomial({monomial: -factor for monomial, factor in polynomial(operand).items()})
    return multiply(number(-1), operand)


def subtract(left: Expr, right: Expr) -> Expr:
    """Return the difference; booleans count as 0 and 1.

    Args:
        left: Minuend of any sort.
        right: Subtrahend of any sort.
    """
    if left is right and not uses([left], "partial"):
        return ZERO
    if left.op == right.op == "number" and left.sort == right.sort == "int":
        return number(left.args[0] - right.args[0])
    return add(left, negative(right))


def divide(left: Expr, right: Expr) -> Expr:
    """Return the quotient of real numbers; booleans count as 0 and 1.

    Args:
        left: Dividend of any sort.
        right: Divisor of any sort; the constant 0 is not folded.
    """
    left, right = as_integer(left), as_integer(right)
    divisor = right.as_number
    if divisor == 1:
        return left
    if divisor and left.op == "number":
        return number(left.args[0] / divisor)
    if isinstance(divisor, int) and divisor and left.sort == "int":
        terms = polynomial(left)
        if all(factor % divisor == 0 for factor in terms.values()):
            return from_polynomial({monomial: factor // divisor for monomial, factor in terms.items()})
    if divisor and math.isfinite(divisor):
        return multiply(left, number(1 / divisor))
    return make("quotient", (left, right), "real")


def floor_divide(left: Expr, right: Expr) -> Expr:
    """Return the quotient of integers, rounded down.

    Args:
        left: Dividend.
        right: Divisor of either sign; the constant 0 is not folded.
    """
    if left.op == right.op == "number" and right.args[0]:
        return number(left.args[0] // right.args[0])
    return (
        divide(left, right) if right is ONE or _divides(right, left) else make("floor_quotient", (left, right), "int")
    )


def modulo(left: Expr, right: Expr) -> Expr:
    """Return the remainder of `floor_divide`.

    Args:
        left: Dividend, an integer.
        right: Divisor, whose sign the remainder has; the constant 0 is not folded.
    """
    if left.op == right.op == "number" and right.args[0]:
        return number(left.args[0] % right.args[0])
    return ZERO if _divides(right, left) else make("modulo", (left, right), "int")


def _divides(divisor: Expr, operand: Expr) -> bool:
    by = divisor.as_number
    return isinstance(by, int) and by > 0 and all(factor % by == 0 for factor in polynomial(operand).values())
