"""Signs of real numbers, and whether they are defined for every input."""

from __future__ import annotations

import math

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr
from graphpass.analysis.symbolic.step import PAST

#: Prefix of lengths that are numbers of selected elements.
SELECTED = "places "


def is_positive(expr: Expr) -> bool:
    """Return whether a number is proven to be greater than 0 wherever it is defined."""
    return least_sign(expr) == 1


#: Maximum number of nested expressions whose signs are derived: a norm or a softmax, but not the layers before it.
_DEEPEST = 12


def least_sign(expr: Expr, depth: int = _DEEPEST) -> int | None:
    """Return 1 for positive and 0 for nonnegative numbers; ``None`` if it may be negative.

    Args:
        expr: The number, in canonical form.
        depth: Maximum number of nested expressions to examine.
    """
    if expr.op == "number":
        return None if not expr.args[0] >= 0 else int(expr.args[0] > 0)
    if expr.op in {"length", "index"} or expr.sort == "int":
        is_positive = (expr.op == "length" and not may_be_empty(expr)) or is_natural(ex.subtract(expr, ONE))
        return 1 if is_positive else 0 if is_natural(expr) else None
    if expr.op == "apply":
        return {"exp": 1, "sqrt": 0}.get(str(expr.args[0]))
    if expr.op == "raise":
        base, is_root = (least_sign(expr.args[0], depth - 1) if depth else None), not expr.args[1].is_integer()
        return base if base else 0 if base == 0 or is_root or expr.args[1] % 2 == 0 else None
    if expr.op == "read":
        is_sum = getattr(expr.args[0], "kind", None) in {"sum", "terms"}
        return _sign_of_sum(expr.args[0].bodies[0], depth - 1) if is_sum and depth else None
    if expr.op not in {"choose", "real_sum", "times"} or not depth:
        return None
    known: list[int] = []
    for part in expr.args[expr.op == "choose" :]:
        sign = least_sign(part, depth - 1)
        if sign is None:
            return None
        known.append(sign)
    return max(known) if expr.op == "real_sum" else min(known)


def may_be_empty(size: Expr) -> bool:
    """Return whether a size is the past or a number of selected elements.

    Axes of other lengths are not empty.
    """
    return size is PAST or (size.op == "length" and str(size.args[0]).startswith(SELECTED))


def _sign_of_sum(body: Expr, depth: int) -> int | None:
    """Return the sign of a sum; one of positive shares of selected elements is positive."""
    factors = body.args if body.op == "times" else (body,)
    others = [factor for factor in factors if not _counts_selected(factor)]
    if len(others) < len(factors) and all(least_sign(factor, depth) == 1 for factor in others):
        return 1
    sign = least_sign(body, depth)
    return 0 if sign == 1 and sums_nothing(body) else sign


def sums_nothing(body: Expr) -> bool:
    """Return whether a bound index of a definition's body may have no values."""
    return any(
        part.op == "index" and str(part.args[0]).startswith("r") and may_be_empty(part.args[1])
        for part in ex.walk(body)
    )


def _counts_selected(factor: Expr) -> bool:
    """Return whether a factor counts how often the largest elements include a summed index."""
    is_sum = factor.op == "read" and getattr(factor.args[0], "kind", None) == "sum"
    bodies = factor.args[0].bodies if is_sum else ()
    if not bodies or bodies[0].op != "choose" or bodies[0].args[1:] != (ONE, ZERO) or bodies[0].args[0].op != "zero":
        return False
    compared = [part.args[0] for part in ex.walk(bodies[0].args[0]) if part.op == "read"]
    is_summed = any(part.op == "index" and str(part.args[0]).startswith("r") for part in factor.args[1:])
    return is_summed and any(getattr(part, "kind", None) == "top" for part in compared)


def reads_infinity(expr: Expr) -> bool:
    """Return whether an expression contains an infinite constant."""
    return ex.uses([expr], "partial") and any(
        part.op == "number" and part.sort == "real" and math.isinf(part.args[0]) for part in ex.walk(expr)
    )


def is_total(expr: Expr) -> bool:
    """Return whether a number is proven to be defined and finite for every input.

    It is not if it divides by a number that may be 0, or has the root or logarithm of one that may be negative.
    """
    pending, seen = [expr], {expr}
    while pending:
        part = pending.pop()
        if part.sort != "real" or not ex.uses([part], "partial"):
            continue
        if not _is_total_of_operands(part):
            return False
        operands = {operand for operand in part.operands if operand.sort == "real"} - seen
        seen |= operands
        pending += operands
    return True


def _is_total_of_operands(part: Expr) -> bool:
    """Return whether an expression is defined and finite wherever its operands are."""
    if part.op == "number":
        return math.isfinite(part.args[0])
    if part.op == "read":
        return not getattr(part.args[0], "is_partial", False)
    if part.op == "raise":
        sign, exponent = least_sign(part.args[0]), part.args[1]
        return sign == 1 or (exponent > 0 and (exponent.is_integer() or sign is not None))
    if part.op == "quotient":
        return is_positive(part.args[1])
    if part.op == "apply":
        function, operand = part.args[:2]
        if function == "sqrt":
            return least_sign(operand) is not None
        return is_positive(operand) if function == "log" else function not in {"power", "vanish"}
    return part.op != "opaque"
