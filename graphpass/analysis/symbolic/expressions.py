"""Expressions of one element of a tensor: hash-consed, and normalized as they are made.

Integers are polynomials of atoms with integer coefficients; comparisons of integers are ``polynomial <= 0`` or
``polynomial == 0``; booleans are flat conjunctions and disjunctions. Equal expressions are one object, so that
equality by structure is identity. Arithmetic is exact: f32 and f64 count as real numbers, and whole ones as integers;
f16 and bf16 round (`round_to`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.nodes import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    Expr,
    Polynomial,
    Sort,
    from_polynomial,
    index,
    length,
    make,
    number,
    polynomial,
    product,
    read,
    total,
    walk,
)
from graphpass.analysis.symbolic.rounding import rounded

__all__ = [
    "FALSE",
    "ONE",
    "TRUE",
    "ZERO",
    "Expr",
    "Sort",
    "add",
    "apply",
    "at_most",
    "choose",
    "conjunction",
    "disjunction",
    "divide",
    "equal",
    "floor_divide",
    "holds",
    "index",
    "length",
    "less",
    "make",
    "maximum",
    "minimum",
    "modulo",
    "multiply",
    "negate",
    "negative",
    "number",
    "polynomial",
    "read",
    "rebuild",
    "round_to",
    "running_sum",
    "substitute",
    "subtract",
    "walk",
]


def apply(function: str, operands: Iterable[Expr], sort: Sort = "real") -> Expr:
    """Return an uninterpreted function of numbers, computed at constants alone."""
    return make("apply", (function, *operands), sort)


def running_sum(body: Expr, bound: Expr, upper: Expr) -> Expr:
    """Return the sum of ``body`` for the index ``bound`` from 0 to ``upper``, included."""
    value = body.as_number
    if isinstance(value, int) and body.sort == "int":
        return multiply(body, add(upper, ONE))
    return make("running_sum", (body, bound, upper), "int")


# Integers


def _as_integer(expr: Expr) -> Expr:
    return choose(expr, ONE, ZERO) if expr.sort == "bool" else expr


def add(*operands: Expr) -> Expr:
    """Return the sum; booleans count as 0 and 1."""
    terms = [_as_integer(operand) for operand in operands if operand is not ZERO]
    if len(terms) < 2:
        return terms[0] if terms else ZERO
    if all(term.op == "number" and term.sort == "int" for term in terms):
        return number(sum(term.args[0] for term in terms))
    if len(terms) == 2 and (distributed := _distributed(add, *terms)) is not None:
        return distributed
    if all(term.sort == "int" for term in terms):
        return from_polynomial(total(*map(polynomial, terms)))
    flat = [part for term in terms for part in (term.args if term.op == "real_sum" else (term,))]
    constant = math.fsum(part.args[0] for part in flat if part.op == "number")
    rest = sorted((part for part in flat if part.op != "number"), key=lambda part: part.order)
    kept = [*rest, number(constant)] if constant or not rest else rest
    return kept[0] if len(kept) == 1 else make("real_sum", tuple(kept), "real")


def multiply(one: Expr, other: Expr) -> Expr:
    """Return the product; booleans count as 0 and 1."""
    one, other = _as_integer(one), _as_integer(other)
    if (distributed := _distributed(multiply, one, other)) is not None:
        return distributed
    if ZERO in (one, other):
        return ZERO
    if ONE in (one, other):
        return other if one is ONE else one
    if one.sort == other.sort == "int":
        factors = polynomial(one), polynomial(other)
        if _is_large(*factors):
            return make("product", tuple(sorted((one, other), key=lambda operand: operand.order)), "int")
        return from_polynomial(product(*factors))
    if one.op == other.op == "number":
        return number(one.args[0] * other.args[0])
    for factor, rest in ((one, other), (other, one)):
        constants = [part for part in rest.args if part.op == "number"] if rest.op == "product" else []
        if factor.op == "number" and constants:
            (others,) = (part for part in rest.args if part.op != "number")
            return multiply(number(factor.args[0] * constants[0].args[0]), others)
    return make("product", tuple(sorted((one, other), key=lambda operand: operand.order)), "real")


#: Integers with more factors, terms or bits are not multiplied out: hostile graphs square their sizes again and again.
_MOST_FACTORS, _MOST_TERMS, _MOST_BITS = 8, 256, 128


def _is_large(one: Polynomial, other: Polynomial) -> bool:
    """Return whether a product is too large to be multiplied out."""
    degrees, bits = (
        [max(map(measure, parts), default=0) for parts in (one.items(), other.items())]
        for measure in (lambda term: len(term[0]), lambda term: term[1].bit_length())
    )
    return sum(degrees) > _MOST_FACTORS or sum(bits) > _MOST_BITS or len(one) * len(other) > _MOST_TERMS


def negative(operand: Expr) -> Expr:
    """Return the negative."""
    if operand.sort == "int" and operand.op != "choose":
        return from_polynomial({monomial: -factor for monomial, factor in polynomial(operand).items()})
    return multiply(number(-1), operand)


def subtract(one: Expr, other: Expr) -> Expr:
    """Return the difference."""
    if one is other:
        return ZERO
    if one.op == other.op == "number" and one.sort == other.sort == "int":
        return number(one.args[0] - other.args[0])
    return add(one, negative(other))


def divide(one: Expr, other: Expr) -> Expr:
    """Return the quotient of real numbers."""
    one, other = _as_integer(one), _as_integer(other)
    divisor = other.as_number
    if divisor == 1:
        return one
    if divisor and one.op == "number":
        return number(one.args[0] / divisor)
    if isinstance(divisor, int) and divisor and one.sort == "int":
        terms = polynomial(one)
        if all(factor % divisor == 0 for factor in terms.values()):
            return from_polynomial({monomial: factor // divisor for monomial, factor in terms.items()})
    if divisor and math.isfinite(divisor):
        return multiply(one, number(1 / divisor))
    return make("quotient", (one, other), "real")


def floor_divide(one: Expr, other: Expr) -> Expr:
    """Return the quotient of integers, rounded down."""
    if one.op == other.op == "number" and other.args[0]:
        return number(one.args[0] // other.args[0])
    return divide(one, other) if other is ONE or _divides(other, one) else make("floor_quotient", (one, other), "int")


def modulo(one: Expr, other: Expr) -> Expr:
    """Return the remainder of `floor_divide`."""
    if one.op == other.op == "number" and other.args[0]:
        return number(one.args[0] % other.args[0])
    return ZERO if _divides(other, one) else make("modulo", (one, other), "int")


def _divides(divisor: Expr, operand: Expr) -> bool:
    by = divisor.as_number
    return isinstance(by, int) and by > 0 and all(factor % by == 0 for factor in polynomial(operand).values())


def maximum(one: Expr, other: Expr) -> Expr:
    """Return the larger number."""
    return _extreme(one, other, at_most(other, one))


def minimum(one: Expr, other: Expr) -> Expr:
    """Return the smaller number."""
    return _extreme(one, other, at_most(one, other))


def _extreme(one: Expr, other: Expr, takes_one: Expr) -> Expr:
    return choose(takes_one, _as_integer(one), _as_integer(other))


# Comparisons and conditions


def at_most(one: Expr, other: Expr) -> Expr:
    """Return ``one <= other``."""
    if one.op == other.op == "number":
        return number(one.args[0] <= other.args[0])
    one, other = _as_integer(one), _as_integer(other)
    if (distributed := _distributed(at_most, one, other)) is not None:
        return distributed
    if one.sort == other.sort == "int":
        return _not_positive(subtract(one, other))
    bound = other.as_number if one.sort == "int" else one.as_number if other.sort == "int" else None
    if bound is not None:
        # An integer against a real number.
        if math.isinf(bound):
            return number((bound > 0) == (one.sort == "int"))
        return (
            at_most(one, number(math.floor(bound))) if one.sort == "int" else at_most(number(math.ceil(bound)), other)
        )
    return make("at_most", (one, other), "bool")


def _not_positive(expr: Expr) -> Expr:
    """Return ``expr <= 0``."""
    value = expr.as_number
    if value is not None:
        return number(value <= 0)
    if is_natural(negative(expr)):
        return TRUE
    if is_natural(subtract(expr, ONE)):
        return FALSE
    terms = polynomial(expr)
    divisor = math.gcd(*(factor for monomial, factor in terms.items() if monomial))
    if divisor > 1:
        terms = {monomial: factor // divisor for monomial, factor in terms.items() if monomial} | {
            (): -(-terms.get((), 0) // divisor)
        }
        return _not_positive(from_polynomial(terms))
    return make("not_positive", (expr,), "bool")


def less(one: Expr, other: Expr) -> Expr:
    """Return ``one < other``."""
    return negate(at_most(other, one))


def equal(one: Expr, other: Expr) -> Expr:
    """Return whether two numbers, or two conditions, are equal."""
    if one is other:
        return TRUE
    if one.sort == other.sort == "bool":
        return disjunction(conjunction(one, other), conjunction(negate(one), negate(other)))
    one, other = _as_integer(one), _as_integer(other)
    if (distributed := _distributed(equal, one, other)) is not None:
        return distributed
    if one.op == other.op == "number":
        return number(one.args[0] == other.args[0])
    if one.sort == other.sort == "int":
        return _zero(subtract(one, other))
    return make("equal", tuple(sorted((one, other), key=lambda operand: operand.order)), "bool")


def _zero(expr: Expr) -> Expr:
    """Return ``expr == 0``."""
    terms = polynomial(expr)
    divisor = math.gcd(*(factor for monomial, factor in terms.items() if monomial))
    if terms.get((), 0) % (divisor or 1):
        return FALSE
    if is_natural(subtract(expr, ONE)) or is_natural(subtract(negative(expr), ONE)):
        return FALSE
    first = next((factor for monomial, factor in terms.items() if monomial), 1)
    by = divisor if first > 0 else -divisor
    return make("zero", (from_polynomial({monomial: factor // by for monomial, factor in terms.items()}),), "bool")


def negate(operand: Expr) -> Expr:
    """Return the negation."""
    if operand.op == "number":
        return number(not operand.args[0])
    if operand.op == "not":
        negated: Expr = operand.args[0]
        return negated
    if operand.op == "not_positive":
        return _not_positive(subtract(ONE, operand.args[0]))
    if operand.op in {"and", "or"}:
        return _joined("or" if operand.op == "and" else "and", map(negate, operand.args))
    return make("not", (operand,), "bool")


def conjunction(*operands: Expr) -> Expr:
    """Return whether all conditions hold."""
    return _joined("and", operands)


def disjunction(*operands: Expr) -> Expr:
    """Return whether any condition holds."""
    return _joined("or", operands)


def _joined(op: Literal["and", "or"], operands: Iterable[Expr]) -> Expr:
    neutral, decisive = (TRUE, FALSE) if op == "and" else (FALSE, TRUE)
    flat = {part for operand in operands for part in (operand.args if operand.op == op else (operand,))} - {neutral}
    if decisive in flat or any(negate(part) in flat for part in flat if part.op not in {"and", "or"}):
        return decisive
    dual: Literal["and", "or"] = "or" if op == "and" else "and"
    for part in sorted((part for part in flat if part.op == dual), key=lambda part: part.order):
        kept = [one for one in part.args if negate(one) not in flat]
        if len(kept) < len(part.args) or any(one in flat for one in part.args):
            # The others decide parts of it, or all.
            rest = [] if any(one in flat for one in part.args) else [_joined(dual, kept)]
            return _joined(op, [*(flat - {part}), *rest])
    ordered = sorted(_without_implied(op, flat), key=lambda part: part.order)
    return neutral if not ordered else ordered[0] if len(ordered) == 1 else make(op, tuple(ordered), "bool")


#: Comparisons beyond this number are not set against one another.
_MOST_COMPARED = 16


def _without_implied(op: Literal["and", "or"], parts: set[Expr]) -> set[Expr]:
    """Drop comparisons that follow from others; of alternatives, those that others follow from."""
    compared = sorted((part for part in parts if part.op == "not_positive"), key=lambda part: part.order)
    if not 1 < len(compared) <= _MOST_COMPARED:
        return parts
    dropped: set[Expr] = set()
    for one in compared:
        for other in compared:
            if one is not other and other not in dropped and one not in dropped:
                stronger, weaker = (other, one) if op == "and" else (one, other)
                if is_natural(subtract(stronger.args[0], weaker.args[0])):
                    dropped.add(one)
    return parts - dropped


def holds(operand: Expr) -> Expr:
    """Return a number as a condition: whether it is not 0."""
    return operand if operand.sort == "bool" else negate(equal(operand, ZERO))


def choose(condition: Expr, one: Expr, other: Expr) -> Expr:
    """Return ``one`` if the condition holds, else ``other``."""
    if condition is TRUE or one is other:
        return one
    if condition is FALSE:
        return other
    if one.sort == other.sort == "bool":
        return disjunction(conjunction(condition, one), conjunction(negate(condition), other))
    one, other = _as_integer(one), _as_integer(other)
    if condition.op == "not":
        return choose(condition.args[0], other, one)
    if one.op == "choose" and one.args[0] is condition:
        one = one.args[1]
    if other.op == "choose" and other.args[0] is condition:
        other = other.args[2]
    if one is other:
        return one
    if one.op == "choose" and other in one.args[1:]:
        inner, first, second = one.args
        kept = inner if second is other else negate(inner)
        return choose(conjunction(condition, kept), first if second is other else second, other)
    if other.op == "choose" and one in other.args[1:]:
        inner, first, second = other.args
        kept = inner if first is one else negate(inner)
        return choose(disjunction(condition, kept), one, second if first is one else first)
    return make("choose", (condition, one, other), "int" if one.sort == other.sort == "int" else "real")


#: Choices between more constants stay as they are.
_MOST_CHOICES = 8


def _distributed(function: Callable[[Expr, Expr], Expr], one: Expr, other: Expr) -> Expr | None:
    """Return a function of choices between constants as a choice between constants."""
    if "choose" not in (one.op, other.op):
        return None
    counts = _choices(one), _choices(other)
    if None in counts or (counts[0] or 1) * (counts[1] or 1) > _MOST_CHOICES:
        return None
    if one.op == "choose":
        return choose(one.args[0], function(one.args[1], other), function(one.args[2], other))
    return choose(other.args[0], function(one, other.args[1]), function(one, other.args[2]))


def _choices(expr: Expr) -> int | None:
    """Count the constants that an expression chooses from, if it has no other leaves."""
    count, pending = 0, [expr]
    while pending:
        part = pending.pop()
        if part.op == "choose":
            pending += part.args[1:]
        elif part.op != "number":
            return None
        else:
            count += 1
        if count > _MOST_CHOICES:
            return None
    return count


def round_to(element_type: str, operand: Expr) -> Expr:
    """Return a number rounded to f16 or bf16, which hold small integers exactly."""
    exact = number(EXACT_UP_TO[element_type])
    if operand.sort == "bool":
        return operand
    if operand.sort == "int" and all(is_natural(subtract(exact, sign)) for sign in (operand, negative(operand))):
        return operand
    if operand.op == "number" and (math.isinf(operand.args[0]) or not operand.args[0]):
        return operand
    if operand.op == "choose":
        return choose(operand.args[0], *(round_to(element_type, branch) for branch in operand.args[1:]))
    if operand.op == "number":
        return number(float(rounded(element_type, operand.args[0])))
    return apply(f"round_{element_type}", (operand,))


#: The type holds all integers up to this one.
EXACT_UP_TO = {"f16": 2**11, "bf16": 2**8}


# Substitution


def substitute(expr: Expr, replaced: Mapping[Expr, Expr]) -> Expr:
    """Return ``expr`` with other expressions in place of some."""
    known = dict(replaced)
    for part in walk(expr):
        if part not in known:
            operands = part.operands
            same = all(known[operand] is operand for operand in operands)
            known[part] = part if same else rebuild(part, known)
    return known[expr]


def rebuild(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """Return ``expr`` with the operands that ``known`` gives for its own."""
    if expr.op == "sum":
        terms = []
        for monomial, factor in expr.args:
            term = number(factor)
            for atom in monomial:
                term = multiply(term, known[atom])
            terms.append(term)
        return add(*terms)
    args = tuple(known[arg] if isinstance(arg, Expr) else arg for arg in expr.args)
    maker = _MAKERS.get(expr.op)
    return maker(*args) if maker is not None else make(expr.op, args, expr.sort)


_MAKERS: dict[str, Callable[..., Expr]] = {
    "real_sum": add,
    "product": multiply,
    "quotient": divide,
    "floor_quotient": floor_divide,
    "modulo": modulo,
    "at_most": at_most,
    "not_positive": _not_positive,
    "equal": equal,
    "zero": lambda expr: equal(expr, ZERO),
    "not": negate,
    "and": conjunction,
    "or": disjunction,
    "choose": choose,
    "running_sum": running_sum,
    "index": index,
}
