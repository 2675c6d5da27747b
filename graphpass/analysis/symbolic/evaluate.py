"""Evaluate expressions for given indices, lengths and inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy

from graphpass.analysis.symbolic.constants import Table
from graphpass.analysis.symbolic.expressions import RELATIONS
from graphpass.analysis.symbolic.nodes import Expr, walk
from graphpass.analysis.symbolic.rounding import rounded_to

Array: TypeAlias = "numpy.ndarray[Any, Any]"

Read: TypeAlias = "Callable[[Expr, tuple[int, ...]], int | float | bool]"
"""Returns the element of an input, given the ``read`` expression and the index."""


def value_at(root: Expr, values: Mapping[Expr, int], read: Read) -> int | float | bool:
    """Evaluate ``root`` exactly for one assignment.

    Args:
        root: The expression.
        values: Values of its indices and lengths.
        read: Returns elements of its inputs.

    Returns:
        Its value, a truth value for conditions.

    Raises:
        KeyError: An index, length or operator is unknown.
        IndexError: An index is outside of a table.
    """

    def element(part: Expr, source: object, index: list[Any]) -> Any:
        if isinstance(source, Table):
            return _row(source, index)
        return read(part, tuple(int(place) for place in index))

    def counted(part: Expr, upper: Any) -> Any:
        body, bound, _ = part.args
        return sum(int(value_at(body, {**values, bound: place}, read)) for place in range(upper + 1))

    # Functions may be undefined, such as logarithms of negative numbers.
    with numpy.errstate(all="ignore"):
        return _evaluated(root, values, _OPERATORS | {"running_sum": counted}, element)  # type: ignore[no-any-return]


def arrays_at(root: Expr, values: Mapping[Expr, Array]) -> numpy.ma.MaskedArray[Any, Any]:
    """Evaluate ``root`` for arrays of values.

    Args:
        root: The expression.
        values: Arrays of its indices and lengths, with shapes that broadcast.

    Returns:
        The values in the broadcast shape, masked where an index is outside of a table.

    Raises:
        KeyError: The expression reads an input, or an index, length or operator is unknown.
    """

    def counted(part: Expr, upper: Any) -> Any:
        body, bound, _ = part.args
        last = numpy.asarray(upper)
        # Summands are along an additional last axis.
        spread = {index: numpy.asarray(array)[..., None] for index, array in values.items()}
        places = numpy.arange(int(last.max(initial=0)) + 1)
        terms = arrays_at(body, {**spread, bound: places}).astype("int64")
        sums = numpy.broadcast_to(terms, (*terms.shape[:-1], len(places))).cumsum(axis=-1)
        whole = numpy.broadcast_shapes(last.shape, sums.shape[:-1])
        counts = numpy.broadcast_to(sums, (*whole, len(places)))
        return numpy.take_along_axis(counts, numpy.broadcast_to(last, whole)[..., None], axis=-1)[..., 0]

    return numpy.ma.asarray(_evaluated(root, values, _ON_ARRAYS | {"running_sum": counted}, _rows))


def _evaluated(
    root: Expr,
    values: Mapping[Expr, Any],
    operators: Mapping[str, Callable[..., Any]],
    element: Callable[[Expr, object, list[Any]], Any],
) -> Any:
    """Return ``root`` computed with ``operators``; ``element`` reads tables and inputs."""
    known = dict(values)
    for part in walk(root):
        if part in known or part.op in {"index", "length"}:
            continue
        if part.op == "running_sum":
            # Its body is evaluated separately, for each value of the summation index.
            if part.op in operators and part.args[2] in known:
                known[part] = operators[part.op](part, known[part.args[2]])
        elif all(arg in known for arg in part.operands):
            known[part] = _computed(part, known, operators, element)
    return known[root]


def _computed(
    part: Expr,
    known: Mapping[Expr, Any],
    operators: Mapping[str, Callable[..., Any]],
    element: Callable[[Expr, object, list[Any]], Any],
) -> Any:
    values = [known[arg] if isinstance(arg, Expr) else arg for arg in part.args] if part.op != "sum" else []
    if part.op == "read":
        return element(part, values[0], values[1:])
    if part.op == "sum":
        return sum(factor * _product(known[atom] for atom in monomial) for monomial, factor in part.args)
    if part.op == "apply":
        function, *operands = values
        # NumPy's functions do not accept integers beyond int64.
        large = [isinstance(operand, int) and abs(operand) >= 2**63 for operand in operands]
        return FUNCTIONS[function](*(float(x) if is_large else x for x, is_large in zip(operands, large, strict=True)))
    return operators[part.op](*values)


def _row(table: Table, index: list[Any]) -> Any:
    places = tuple(map(int, index))
    for place, size in zip(places, table.elements.shape, strict=True):
        if not 0 <= place < size:
            raise IndexError(f"expected an index into a table of shape {table.elements.shape}, got {place}")
    return table.elements[places].item()


def _rows(part: Expr, source: object, index: list[Any]) -> Any:
    if not isinstance(source, Table):
        raise KeyError(part)
    sizes = source.elements.shape
    if not index:
        return source.elements
    places = [numpy.ma.asarray(place) for place in index]
    beyond = reduce(
        numpy.logical_or,
        (
            numpy.ma.getmaskarray(place) | (place.data < 0) | (place.data >= size)
            for place, size in zip(places, sizes, strict=True)
        ),
    )
    within = (numpy.clip(place.data, 0, size - 1).astype("int64") for place, size in zip(places, sizes, strict=True))
    rows = source.elements[tuple(within)]
    # Evaluate in f64, so that products and quotients of f32 are rounded only once.
    rows = rows.astype("float64") if rows.dtype.kind == "f" else rows
    return numpy.ma.array(rows, mask=beyond) if beyond.any() else rows


def _product(factors: Any) -> Any:
    result: Any = 1
    for factor in factors:
        result = result * factor  # in place, an array would lose the mask of a factor
    return result


#: Functions by their names in `graphpass.analysis.symbolic.expressions.apply`.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceiling": numpy.ceil,
    "cos": numpy.cos,
    "erf": numpy.vectorize(math.erf, otypes=[float]),
    "exp": numpy.exp,
    "floor": numpy.floor,
    "log": numpy.log,
    "power": lambda base, exponent: numpy.power(1.0 * base, exponent),
    "round_bf16": partial(rounded_to, "bf16"),
    "round_f16": partial(rounded_to, "f16"),
    "sin": numpy.sin,
    "sqrt": numpy.sqrt,
    "tanh": numpy.tanh,
    **dict.fromkeys(
        ("truncate", "truncate_i32"),
        lambda value: numpy.trunc(value) if isinstance(value, numpy.ndarray) else int(numpy.trunc(value)),
    ),
}

_OPERATORS: dict[str, Callable[..., Any]] = {
    "number": lambda value: value,
    "real_sum": lambda *terms: sum(terms),
    "product": lambda left, right: left * right,
    "quotient": lambda left, right: left / right,
    "floor_quotient": lambda left, right: left // right,
    "modulo": lambda left, right: left % right,
    "at_most": lambda left, right: bool(left <= right),
    "compared": lambda relation, left, right: bool(RELATIONS[relation](left, right)),
    "not_positive": lambda value: bool(value <= 0),
    "equal": lambda left, right: bool(left == right),
    "zero": lambda value: bool(value == 0),
    "not": lambda value: not value,
    "and": lambda *values: all(values),
    "or": lambda *values: any(values),
    "choose": lambda condition, then, otherwise: then if condition else otherwise,
}

_ON_ARRAYS: dict[str, Callable[..., Any]] = _OPERATORS | {
    # Integral reals are constants of type int; beyond int64, NumPy would make arrays of objects of them.
    "number": lambda value: value if abs(value) < 2**63 else float(value),
    "at_most": lambda left, right: left <= right,
    "compared": lambda relation, left, right: RELATIONS[relation](left, right),
    "not_positive": lambda value: value <= 0,
    "equal": lambda left, right: left == right,
    "zero": lambda value: value == 0,
    "not": numpy.ma.logical_not,
    "and": lambda *values: reduce(numpy.ma.logical_and, values),
    "or": lambda *values: reduce(numpy.ma.logical_or, values),
    "choose": numpy.ma.where,
}
