"""Comparisons of numbers: of integers ``polynomial <= 0`` or ``polynomial == 0``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from graphpass.analysis.symbolic.arithmetic import apply, negative, subtract
from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.conditions import (
    as_integer,
    choose,
    conjunction,
    disjunction,
    negate,
    not_positive,
    over_choices,
    zero,
)
from graphpass.analysis.symbolic.nodes import TRUE, ZERO, Expr, make, number, uses
from graphpass.analysis.symbolic.rounding import EXACT_UP_TO, rounded_to

#: Comparisons of numbers.
RELATIONS: dict[str, Callable[[Any, Any], Any]] = {"at_most": operator.le, "equal": operator.eq, "less": operator.lt}


def at_most(left: Expr, right: Expr) -> Expr:
    """Return the condition ``left <= right``.

    Args:
        left: A number of any sort; booleans count as 0 and 1.
        right: The upper bound, of any sort.
    """
    return compared("at_most", left, right)


def less(left: Expr, right: Expr) -> Expr:
    """Return the condition ``left < right``.

    Args:
        left: A number of any sort; booleans count as 0 and 1.
        right: The exclusive upper bound, of any sort.
    """
    return compared("less", left, right)


def equal(left: Expr, right: Expr) -> Expr:
    """Return the condition that two numbers, or two conditions, are equal.

    Args:
        left: A number or condition; a condition compared with a number counts as 0 or 1.
        right: The other number or condition.
    """
    if left.sort == right.sort == "bool":
        return disjunction(conjunction(left, right), conjunction(negate(left), negate(right)))
    return compared("equal", left, right)


def compared(relation: str, left: Expr, right: Expr) -> Expr:
    """Return a comparison of numbers.

    A comparison with a number that may be undefined is a separate condition: ``log(x) < 0`` and ``log(x) >= 0`` are
    both false where ``x`` is negative.

    Args:
        relation: A key of `RELATIONS`.
        left: A number of any sort; booleans count as 0 and 1.
        right: The other number, of any sort.
    """
    left, right = as_integer(left), as_integer(right)
    if (result := over_choices(partial(compared, relation), left, right)) is not None:
        return result
    if left.op == right.op == "number":
        return number(RELATIONS[relation](left.args[0], right.args[0]))
    if any(operand.sort == "real" and uses([operand], "partial") for operand in (left, right)):
        operands = sorted((left, right), key=lambda operand: operand.order) if relation == "equal" else (left, right)
        return make("compared", (relation, *operands), "bool")
    return _of_defined(relation, left, right)


def as_defined(comparison: Expr) -> Expr:
    """Return a comparison whose numbers are proven to be defined for every input.

    Args:
        comparison: An expression ``compared``.
    """
    return _of_defined(*comparison.args)


def _of_defined(relation: str, left: Expr, right: Expr) -> Expr:
    if relation == "less":
        return negate(at_most_defined(right, left))
    return (at_most_defined if relation == "at_most" else _equal)(left, right)


def at_most_defined(left: Expr, right: Expr) -> Expr:
    """Return ``left <= right`` of defined numbers, or as the condition of an extreme.

    Args:
        left: A number of any sort; booleans count as 0 and 1.
        right: The upper bound, of any sort.
    """
    left, right = as_integer(left), as_integer(right)
    if (result := over_choices(at_most_defined, left, right)) is not None:
        return result
    if left.op == right.op == "number":
        return number(left.args[0] <= right.args[0])
    if left.sort == right.sort == "int":
        return not_positive(subtract(left, right))
    bound = right.as_number if left.sort == "int" else left.as_number if right.sort == "int" else None
    if bound is not None and not math.isnan(bound):
        # An integer compared with a real constant.
        if math.isinf(bound):
            return number((bound > 0) == (left.sort == "int"))
        return (
            at_most(left, number(math.floor(bound))) if left.sort == "int" else at_most(number(math.ceil(bound)), right)
        )
    return make("at_most", (left, right), "bool")


def _equal(left: Expr, right: Expr) -> Expr:
    """Return ``left == right`` for numbers that are defined."""
    if left is right:
        return TRUE
    if left.op == right.op == "number":
        return number(left.args[0] == right.args[0])
    if left.sort == right.sort == "int":
        return zero(subtract(left, right))
    return make("equal", tuple(sorted((left, right), key=lambda operand: operand.order)), "bool")


def holds(operand: Expr) -> Expr:
    """Return the condition that a number is not 0; conditions are unchanged."""
    return operand if operand.sort == "bool" else negate(equal(operand, ZERO))


def maximum(left: Expr, right: Expr) -> Expr:
    """Return the larger number.

    Args:
        left: A number of any sort; booleans count as 0 and 1.
        right: The other number, of any sort.
    """
    return _extreme(left, right, _never_above(right, left), _never_above(left, right))


def minimum(left: Expr, right: Expr) -> Expr:
    """Return the smaller number.

    Args:
        left: A number of any sort; booleans count as 0 and 1.
        right: The other number, of any sort.
    """
    return _extreme(left, right, _never_above(left, right), _never_above(right, left))


def _never_above(left: Expr, right: Expr) -> Expr:
    """Return the condition ``left <= right``, true at the limits of i64.

    Frontends write these limits for a missing bound of a clamp.
    """
    least, most = left.as_number, right.as_number
    is_least = right.sort == "int" and least is not None and least <= -(2**63)
    is_most = left.sort == "int" and most is not None and most >= 2**63 - 1
    return TRUE if is_least or is_most else at_most_defined(left, right)


def _extreme(left: Expr, right: Expr, takes_left: Expr, takes_right: Expr) -> Expr:
    # Bounds may decide only one of the comparisons: both hold for equal numbers.
    return as_integer(right) if takes_right is TRUE else choose(takes_left, as_integer(left), as_integer(right))


def round_to(element_type: str, operand: Expr) -> Expr:
    """Return a number rounded to f16 or bf16.

    Args:
        element_type: ``f16`` or ``bf16``.
        operand: A number; booleans, and integers proven to be within `EXACT_UP_TO`, are exact.
    """
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
        return number(float(rounded_to(element_type, operand.args[0])))
    return apply(f"round_{element_type}", (operand,))
