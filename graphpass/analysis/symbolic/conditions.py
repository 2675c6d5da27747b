"""Conditions as flat conjunctions and disjunctions of comparisons, and choices by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal

from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.nodes import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    Expr,
    from_polynomial,
    make,
    minus,
    number,
    polynomial,
    times,
)


def not_positive(expr: Expr) -> Expr:
    """Return ``expr <= 0``."""
    value = expr.as_number
    if value is not None:
        return number(value <= 0)
    if is_natural(times(expr, number(-1))):
        return TRUE
    if is_natural(minus(expr, ONE)):
        return FALSE
    terms = polynomial(expr)
    divisor = math.gcd(*(factor for monomial, factor in terms.items() if monomial))
    if divisor > 1:
        terms = {monomial: factor // divisor for monomial, factor in terms.items() if monomial} | {
            (): -(-terms.get((), 0) // divisor)
        }
        return not_positive(from_polynomial(terms))
    return make("not_positive", (expr,), "bool")


def zero(expr: Expr) -> Expr:
    """Return ``expr == 0``."""
    terms = polynomial(expr)
    divisor = math.gcd(*(factor for monomial, factor in terms.items() if monomial))
    if terms.get((), 0) % (divisor or 1):
        return FALSE
    if is_natural(minus(expr, ONE)) or is_natural(minus(times(expr, number(-1)), ONE)):
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
    return _inverse(operand)


@lru_cache(maxsize=1 << 14)
def _inverse(operand: Expr) -> Expr:
    """Return the negation; computed once, because nested and long conditions share operands."""
    if operand.op == "not_positive":
        return not_positive(minus(ONE, operand.args[0]))
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
        kept = [operand for operand in part.args if negate(operand) not in flat]
        if len(kept) < len(part.args) or any(operand in flat for operand in part.args):
            # The other operands decide some operands of ``part``, or all.
            rest = [] if any(operand in flat for operand in part.args) else [_joined(dual, kept)]
            return _joined(op, [*(flat - {part}), *rest])
    ordered = sorted(_without_implied(op, flat), key=lambda part: part.order)
    return neutral if not ordered else ordered[0] if len(ordered) == 1 else make(op, tuple(ordered), "bool")


#: Maximum number of comparisons in one conjunction or disjunction that are checked for implications.
_MOST_COMPARED = 16


def _without_implied(op: Literal["and", "or"], parts: set[Expr]) -> set[Expr]:
    """Return operands without comparisons implied by others (``and``), or implying others (``or``)."""
    compared = sorted((part for part in parts if part.op == "not_positive"), key=lambda part: part.order)
    if not 1 < len(compared) <= _MOST_COMPARED:
        return parts
    dropped: set[Expr] = set()
    for condition in compared:
        for other in compared:
            if condition is not other and other not in dropped and condition not in dropped:
                stronger, weaker = (other, condition) if op == "and" else (condition, other)
                if is_natural(minus(stronger.args[0], weaker.args[0])):
                    dropped.add(condition)
    return parts - dropped


def as_integer(expr: Expr) -> Expr:
    """Return a condition as 1 or 0; numbers are unchanged."""
    return choose(expr, ONE, ZERO) if expr.sort == "bool" else expr


def choose(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    """Return one of two values by a condition.

    Args:
        condition: A boolean.
        then: The value if the condition holds, of any sort.
        otherwise: The value if it does not; if only one value is boolean, it counts as 0 or 1.
    """
    if condition is TRUE or then is otherwise:
        return then
    if condition is FALSE:
        return otherwise
    if then.sort == otherwise.sort == "bool":
        return disjunction(conjunction(condition, then), conjunction(negate(condition), otherwise))
    then, otherwise = as_integer(then), as_integer(otherwise)
    if condition.op == "not":
        return choose(condition.args[0], otherwise, then)
    if then.op == "choose" and then.args[0] is condition:
        then = then.args[1]
    if otherwise.op == "choose" and otherwise.args[0] is condition:
        otherwise = otherwise.args[2]
    if then is otherwise:
        return then
    if then.op == "choose" and otherwise in then.args[1:]:
        inner, first, second = then.args
        kept = inner if second is otherwise else negate(inner)
        return choose(conjunction(condition, kept), first if second is otherwise else second, otherwise)
    if otherwise.op == "choose" and then in otherwise.args[1:]:
        inner, first, second = otherwise.args
        kept = inner if first is then else negate(inner)
        return choose(disjunction(condition, kept), then, second if first is then else first)
    return make("choose", (condition, then, otherwise), "int" if then.sort == otherwise.sort == "int" else "real")


#: Maximum number of constants in nested choices over which a function is distributed.
_MOST_CHOICES = 8


def over_choices(function: Callable[[Expr, Expr], Expr], left: Expr, right: Expr) -> Expr | None:
    """Return a function distributed over choices between constants.

    Args:
        function: Called for each pair of constants.
        left: First operand.
        right: Second operand.

    Returns:
        The choice between the results; ``None`` for other operands, or for too many constants.
    """
    if "choose" not in (left.op, right.op):
        return None
    counts = _choices(left), _choices(right)
    if None in counts or (counts[0] or 1) * (counts[1] or 1) > _MOST_CHOICES:
        return None
    if left.op == "choose":
        return choose(left.args[0], function(left.args[1], right), function(left.args[2], right))
    return choose(right.args[0], function(left, right.args[1]), function(left, right.args[2]))


def _choices(expr: Expr) -> int | None:
    """Return the number of constants in nested choices; ``None`` for other leaves or too many."""
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
