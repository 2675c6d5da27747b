"""Replace parts of expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphpass.analysis.symbolic.arithmetic import add, apply, divide, floor_divide, modulo, multiply, running_sum
from graphpass.analysis.symbolic.comparisons import at_most_defined, compared, equal
from graphpass.analysis.symbolic.conditions import choose, conjunction, disjunction, negate, not_positive
from graphpass.analysis.symbolic.nodes import ZERO, Expr, index, make, number


def substitute(expr: Expr, replaced: Mapping[Expr, Expr]) -> Expr:
    """Return an expression with subexpressions replaced.

    Args:
        expr: The expression; also replaced if it is itself a key of ``replaced``.
        replaced: Replacements by subexpression; they are not searched for further keys.
    """
    known = _Replaced(replaced)
    leaves = {key.leaves for key in replaced}
    parts = [expr]
    seen = {expr, *replaced}
    # Parts without the leaves of any key are unchanged.
    for part in parts:
        for operand in part.operands:
            if operand not in seen and any(operand.leaves & wanted == wanted for wanted in leaves):
                seen.add(operand)
                parts.append(operand)
    for part in sorted(parts, key=lambda part: part.order):
        if part not in known and any(known[operand] is not operand for operand in part.operands):
            known[part] = rebuild(part, known)
    return known[expr]


class _Replaced(dict[Expr, Expr]):
    """A map of expressions to their replacements, by default to themselves."""

    def __missing__(self, key: Expr) -> Expr:
        return key


def rebuild(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """Return an expression with each operand replaced.

    Args:
        expr: The expression, whose operator and parameters are kept.
        known: Replacements by operand, for all operands, also for those that do not change.
    """
    if expr.op == "sum":
        terms = []
        for monomial, factor in expr.args:
            term = number(factor)
            for atom in monomial:
                term = multiply(term, known[atom])
            terms.append(term)
        return add(*terms)
    args = tuple(known[arg] if isinstance(arg, Expr) else arg for arg in expr.args)
    if expr.op == "apply":
        return apply(str(args[0]), args[1:], expr.sort)
    maker = _MAKERS.get(expr.op)
    return maker(*args) if maker is not None else make(expr.op, args, expr.sort)


_MAKERS: dict[str, Callable[..., Expr]] = {
    "real_sum": add,
    "product": multiply,
    "quotient": divide,
    "floor_quotient": floor_divide,
    "modulo": modulo,
    "at_most": at_most_defined,
    "compared": compared,
    "not_positive": not_positive,
    "equal": equal,
    "zero": lambda expr: equal(expr, ZERO),
    "not": negate,
    "and": conjunction,
    "or": disjunction,
    "choose": choose,
    "running_sum": running_sum,
    "index": index,
}
