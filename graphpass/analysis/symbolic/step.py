"""Lengths of a step, and its expressions without padding."""

from __future__ import annotations

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import TRUE, Expr

#: Lengths of a step: rows, cached positions before it, new tokens.
BATCH, PAST, LENGTH = ex.length("batch", 1), ex.length("past"), ex.length("length", 1)
TOTAL = ex.add(PAST, LENGTH)

#: Positions of an encoder, to which a decoder's cross attention attends.
ENCODED = ex.length("encoded", 1)


def is_input(expr: Expr) -> bool:
    """Return whether an expression is an element of an input."""
    return expr.op == "read" and isinstance(expr.args[0], str)


def unpadded(expr: Expr) -> Expr:
    """Return an expression for a batch without padding.

    Masks are 1, and positions continue from the past.
    """
    replaced: dict[Expr, Expr] = {}
    for part in ex.walk(expr):
        if is_input(part) and part.sort == "bool":
            replaced[part] = TRUE
        elif is_input(part) and part.sort == "int" and part.args[1:]:
            replaced[part] = ex.add(PAST, ex.substitute(part.args[-1], replaced))
    return ex.substitute(expr, replaced) if replaced else expr
