"""Compute expressions with numbers in place of indices, lengths and inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy

from graphpass.analysis.symbolic.constants import Table
from graphpass.analysis.symbolic.nodes import Expr, walk
from graphpass.analysis.symbolic.rounding import rounded

Array: TypeAlias = "numpy.ndarray[Any, Any]"

Read: TypeAlias = "Callable[[Expr, tuple[int, ...]], int | float | bool]"
"""Return the element of an input that an expression reads."""


def value_at(root: Expr, given: Mapping[Expr, int], read: Read) -> int | float | bool:
    """Compute ``root`` exactly at one place.

    Args:
        root: The expression.
        given: Numbers of its indices and lengths.
        read: Reads its inputs.

    Raises:
        KeyError: It depends on an index, length or operator that is not known.
        IndexError: A table ends before a place that is read.
    """
    known: dict[Expr, Any] = dict(given)
    for part in walk(root):
        is_leaf = part.op in {"index", "length", "running_sum"}
        if part not in known and not is_leaf and all(arg in known for arg in part.operands):
            known[part] = _computed(part, known, read)
        elif part.op == "running_sum" and part.args[2] in known:
            body, bound, upper = part.args
            known[part] = sum(int(value_at(body, {**given, bound: place}, read)) for place in range(known[upper] + 1))
    return known[root]  # type: ignore[no-any-return]


def _computed(part: Expr, known: Mapping[Expr, Any], read: Read) -> Any:
    values = [known[arg] if isinstance(arg, Expr) else arg for arg in part.args] if part.op != "sum" else []
    if part.op == "read":
        source, *index = values
        places = tuple(int(place) for place in index)
        if isinstance(source, Table):
            if any(not 0 <= place < size for place, size in zip(places, source.elements.shape, strict=True)):
                raise IndexError(f"a table of {source.elements.shape} elements has none at {places}")
            return source.elements[places].item()
        return read(part, places)
    if part.op == "sum":
        return sum(factor * _product(known[atom] for atom in monomial) for monomial, factor in part.args)
    if part.op == "apply":
        function, *operands = values
        return FUNCTIONS[function](*operands)
    return _OPERATORS[part.op](*values)


def _product(factors: Any) -> Any:
    result: Any = 1
    for factor in factors:
        result *= factor
    return result


#: Functions that `graphpass.analysis.symbolic.expressions.apply` names.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceiling": numpy.ceil,
    "cos": numpy.cos,
    "exp": numpy.exp,
    "floor": numpy.floor,
    "log": numpy.log,
    "power": numpy.power,
    "round_bf16": lambda value: rounded("bf16", float(value)),
    "round_f16": lambda value: rounded("f16", float(value)),
    "sin": numpy.sin,
    "sqrt": numpy.sqrt,
    "truncate": lambda value: int(numpy.trunc(value)),
}

_OPERATORS: dict[str, Callable[..., Any]] = {
    "number": lambda value: value,
    "real_sum": lambda *terms: sum(terms),
    "product": lambda one, other: one * other,
    "quotient": lambda one, other: one / other,
    "floor_quotient": lambda one, other: one // other,
    "modulo": lambda one, other: one % other,
    "at_most": lambda one, other: bool(one <= other),
    "not_positive": lambda value: bool(value <= 0),
    "equal": lambda one, other: bool(one == other),
    "zero": lambda value: bool(value == 0),
    "not": lambda value: not value,
    "and": lambda *values: all(values),
    "or": lambda *values: any(values),
    "choose": lambda condition, one, other: one if condition else other,
}
