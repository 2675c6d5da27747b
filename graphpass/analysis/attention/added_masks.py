"""Masks that exclude keys by a number added to the scores."""

from __future__ import annotations

import math

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import TRUE, ZERO, Expr, number
from graphpass.ir.values import MASKED_BELOW


def hides(root: Expr) -> Expr:
    """Return the condition under which an added number is below `MASKED_BELOW`."""
    known: dict[Expr, Expr] = {}
    for expr in ex.walk(root):
        if expr.sort == "bool":
            continue
        value = expr.as_number
        if value is not None:
            known[expr] = number(bool(value < MASKED_BELOW))
        elif expr.op == "choose":
            branches = known[expr.args[1]], known[expr.args[2]]
            known[expr] = branches[0] if _is_bounded(expr) else ex.choose(expr.args[0], *branches)
        elif expr.op == "real_sum":
            known[expr] = ex.disjunction(*(known[part] for part in expr.args))
        elif expr.op == "sum":
            # Integer masks are choices multiplied by large factors.
            known[expr] = _sum_hides(expr)
        elif expr.op == "product":
            known[expr] = _product_hides(expr)
        else:
            known[expr] = ex.FALSE
    return known[root]


def _is_bounded(expr: Expr) -> bool:
    """Return whether a choice is the maximum of a number and a bound below `MASKED_BELOW`."""
    _, value, bound = expr.args
    limit = bound.as_number
    return limit is not None and limit < MASKED_BELOW and expr is ex.maximum(value, bound)


def _sum_hides(expr: Expr) -> Expr:
    """Return the condition under which a sum of integers with a large factor excludes keys."""
    large = any(abs(factor) > -MASKED_BELOW for _, factor in expr.args)
    return ex.less(_spread(expr), number(int(MASKED_BELOW))) if large else ex.FALSE


def _spread(expr: Expr) -> Expr:
    """Return a sum with one choice as a choice between two sums."""
    choices = [atom for atom in expr.operands if atom.op == "choose"]
    if len(choices) != 1:
        return expr
    condition, *branches = choices[0].args
    return ex.choose(condition, *(ex.substitute(expr, {choices[0]: branch}) for branch in branches))


def _product_hides(expr: Expr) -> Expr:
    left, right = expr.args
    for chosen, factor in ((left, right), (right, left)):
        value = factor.as_number
        if chosen.op == "choose" and value is not None:
            hidden = [
                number(bool(branch.as_number is not None and branch.as_number * value < MASKED_BELOW))
                for branch in chosen.args[1:]
            ]
            return ex.choose(chosen.args[0], *hidden)
    return ex.FALSE


def is_infinite(root: Expr) -> Expr | None:
    """Return the condition under which an added number is -inf; ``None`` if it is unknown."""
    known: dict[Expr, Expr] = {}
    for expr in ex.walk(root):
        if expr.sort == "bool":
            continue
        parts = [known[part] for part in expr.operands if part in known]
        if expr.as_number is not None:
            known[expr] = number(expr.as_number == -math.inf)
        elif expr.op == "choose":
            known[expr] = ex.conjunction(*parts) if _is_bounded(expr) else ex.choose(expr.args[0], *parts)
        elif expr.op == "real_sum":
            known[expr] = ex.disjunction(*parts)
        elif all(part is ex.FALSE for part in parts):
            known[expr] = ex.FALSE
        else:
            return None
    return known[root]


def shown(root: Expr) -> Expr:
    """Return the value of an added number at visible keys."""
    known: dict[Expr, Expr] = {}
    for expr in ex.walk(root):
        value = expr.as_number
        if expr.sort == "bool":
            known[expr] = expr
        elif value is not None:
            known[expr] = ZERO if value < MASKED_BELOW else expr
        elif expr.op == "choose":
            condition, *branches = expr.args
            hidden = [hides(branch) is TRUE for branch in branches]
            shown = [known[branch] for branch in branches]
            hidden[1] |= _is_bounded(expr)
            known[expr] = shown[1] if hidden[0] else shown[0] if hidden[1] else ex.choose(condition, *shown)
        elif expr.op in {"real_sum"}:
            known[expr] = ex.add(*(known[part] for part in expr.args))
        elif expr.op in {"sum", "product"} and (hidden_if := hides(expr)) is not ex.FALSE:
            known[expr] = ZERO if _is_only_mask(expr, hidden_if) else expr
        else:
            known[expr] = expr
    return known[root]


def _is_only_mask(expr: Expr, hides: Expr) -> bool:
    """Return whether an added number is 0 unless it excludes the key."""
    return ex.substitute(expr, {hides: ex.FALSE}) is ZERO
