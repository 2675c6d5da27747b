"""Expressions of one tensor element, hash-consed and normalized at construction.

Integers are polynomials of atoms with integer coefficients. Comparisons of integers are ``polynomial <= 0`` or
``polynomial == 0``. Booleans are flat conjunctions and disjunctions. Structurally equal expressions are the same
object. Arithmetic is exact: values of f32 and f64 are real numbers, and integers if they are integral; values of f16
and bf16 are rounded (`round_to`).
"""

from __future__ import annotations

from graphpass.analysis.symbolic.arithmetic import (
    add,
    apply,
    divide,
    floor_divide,
    modulo,
    multiply,
    negative,
    running_sum,
    subtract,
)
from graphpass.analysis.symbolic.comparisons import (
    RELATIONS,
    as_defined,
    at_most,
    equal,
    holds,
    less,
    maximum,
    minimum,
    round_to,
)
from graphpass.analysis.symbolic.conditions import choose, conjunction, disjunction, negate
from graphpass.analysis.symbolic.nodes import (
    FALSE,
    ONE,
    SUMMED,
    TRUE,
    ZERO,
    Expr,
    Sort,
    contains,
    index,
    is_summed,
    length,
    make,
    number,
    polynomial,
    read,
    uses,
    walk,
)
from graphpass.analysis.symbolic.substitution import rebuild, substitute

__all__ = [
    "FALSE",
    "ONE",
    "RELATIONS",
    "SUMMED",
    "TRUE",
    "ZERO",
    "Expr",
    "Sort",
    "add",
    "apply",
    "as_defined",
    "at_most",
    "choose",
    "conjunction",
    "contains",
    "disjunction",
    "divide",
    "equal",
    "floor_divide",
    "holds",
    "index",
    "is_summed",
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
    "uses",
    "walk",
]
