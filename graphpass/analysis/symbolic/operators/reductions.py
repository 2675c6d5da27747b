"""Rules of reductions, CumSum and matrix products."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import reduce

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Index, Request, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, SUMMED, ZERO, Expr, number
from graphpass.analysis.symbolic.operators.elementwise import fits
from graphpass.analysis.symbolic.places import broadcast_index
from graphpass.ir.values import INTEGERS

#: Largest size of an axis whose reduction is expanded into terms.
_MOST_TERMS = 64

#: Largest size of an axis that a matrix product sums along. Products of positions and frequencies have 1 term; those of
#: activations and weights have one per channel, which even in small models are too many to expand layer by layer.
_MOST_PRODUCTS = 8


def _cum_sum(element: Element) -> Steps:
    node = element.node
    axis = (yield node.source(1), (ZERO,) * (node.source(1).rank or 0)).as_number
    if node.attributes.get("exclusive") or node.attributes.get("reverse") or not isinstance(axis, int):
        raise UnknownError("it is exclusive or reversed, or its axis is not constant")
    axis %= len(element.index)
    bound = _summation_index(element, element.own_shape[axis])
    body = yield node.source(), element.index_with(axis, bound)
    if body.sort == "real":
        raise UnknownError("its operand is real, expected integers or booleans")
    return ex.running_sum(ex.choose(body, ONE, ZERO) if body.sort == "bool" else body, bound, element.index[axis])


def _summation_index(element: Element, size: Expr) -> Expr:
    """Return an index variable to sum over, other than those of outer sums."""
    used = {part.args[0] for part in filter(ex.is_summed, ex.walk(*element.index))}
    names = (f"{SUMMED} {depth}" if depth else SUMMED for depth in range(len(used) + 1))
    return ex.index(next(name for name in names if name not in used), size)


def reduced_axes(element: Element) -> Generator[Request, Expr, list[int]]:
    """Return the axes of a reduction, in ascending order.

    Yields:
        Requests for the axes if they are an input.

    Raises:
        UnknownError: The axes are computed, and unknown or empty.
    """
    rank, node = len(element.shape(0)), element.node
    is_stated = "axes" in node.attributes
    axes = (yield from element.axes()) if is_stated or node.input(1) is not None else range(rank)
    if not axes and not is_stated:
        raise UnknownError("it computes that it has no axes, which means all of them in ONNX")
    return sorted({axis % rank for axis in axes})


def unreduced(element: Element, along: Mapping[int, Expr]) -> Index:
    """Return the index into a reduction's operand.

    Args:
        element: The element of the reduction's output.
        along: Indices along the reduced axes.
    """
    rank = len(element.shape(0))
    own = [place for axis, place in enumerate(element.index) if len(element.index) < rank or axis not in along]
    kept = iter(own)
    return tuple(along[axis] if axis in along else next(kept) for axis in range(rank))


def _reduced(function: Callable[[Expr, Expr], Expr], sums: bool = False) -> Rule:
    def rule(element: Element) -> Steps:
        source, sizes = element.node.source(), element.shape(0)
        axes = yield from reduced_axes(element)
        along = [axis for axis in axes if sizes[axis] is not ONE]
        places = dict.fromkeys(axes, ZERO)
        if not along:
            return (yield source, unreduced(element, places))
        (first, *more), count = along, sizes[along[0]].as_number
        is_small = isinstance(count, int) and count <= _MOST_TERMS
        if more or count == 0 or not (sums or is_small):
            raise UnknownError("it reduces several axes, or an axis of size 0, or of unknown or large size")
        if is_small:
            terms = []
            for place in map(number, range(int(count or 0))):
                terms.append((yield source, unreduced(element, places | {first: place})))
            return reduce(function, terms)
        bound = _summation_index(element, sizes[first])
        body = yield source, unreduced(element, places | {first: bound})
        if body.sort == "real":
            raise UnknownError("it sums real numbers along an axis of unknown or large size")
        return ex.running_sum(body, bound, ex.subtract(sizes[first], ONE))

    return rule


def product_term(element: Element, swaps: tuple[bool, bool], bound: Expr) -> Steps:
    """Return one term of the sum in an element of a matrix product.

    Args:
        element: The element of the product.
        swaps: Whether the last two axes of each operand are swapped.
        bound: Index along the summed axis.

    Yields:
        Requests for the factors.

    Raises:
        UnknownError: An operand has more axes than the result.
    """
    row, column = element.index[-2:]
    ends = (bound, row) if swaps[0] else (row, bound), (column, bound) if swaps[1] else (bound, column)
    factors = []
    for port in (0, 1):
        batch = element.shape(port)[:-2]
        start = len(element.index) - 2 - len(batch)
        if start < 0:
            raise UnknownError("an operand has more axes than the result")
        leading = broadcast_index(element.index[start:-2], batch)
        factors.append((yield element.node.source(port), (*leading, *ends[port])))
    return ex.multiply(*factors)


def summed_size(element: Element, swaps: tuple[bool, bool]) -> Expr:
    """Return the size of the axis that a matrix product sums along.

    Args:
        element: The element of the product.
        swaps: As `product_term`.

    Raises:
        UnknownError: An operand is a vector.
    """
    if min(len(element.shape(0)), len(element.shape(1))) < 2:
        raise UnknownError("an operand is a vector, expected matrices")
    return element.shape(0)[-2 if swaps[0] else -1]


def _matmul(element: Element) -> Steps:
    """Return an element of a product along a small axis, as of frequencies and positions.

    Raises:
        UnknownError: The size of the summed axis is unknown or large.
    """
    attributes = element.node.attributes
    swaps = bool(attributes["transpose_a"]), bool(attributes["transpose_b"])
    count = summed_size(element, swaps).as_number
    if not isinstance(count, int) or count > _MOST_PRODUCTS:
        raise UnknownError("it sums along an axis of unknown or large size")
    total: Expr = ZERO
    for place in map(number, range(count)):
        total = ex.add(total, (yield from product_term(element, swaps, place)))
    return total


def in_range(rule: Rule) -> Rule:
    """Return the rule of an operator whose integer results may not overflow."""

    def checked(element: Element) -> Steps:
        result, element_type = (yield from rule(element)), element.value.element_type
        if element_type in INTEGERS and not fits(element_type, result):
            raise UnknownError(f"numbers may be out of the range of {element_type}")
        return result

    return checked


RULES: dict[str, Rule] = {
    "CumSum": in_range(_cum_sum),
    "MatMul": in_range(_matmul),
    "ReduceLogicalAnd": _reduced(ex.conjunction),
    "ReduceLogicalOr": _reduced(ex.disjunction),
    "ReduceMax": _reduced(ex.maximum),
    "ReduceMin": _reduced(ex.minimum),
    "ReduceProd": in_range(_reduced(ex.multiply)),
    "ReduceSum": in_range(_reduced(ex.add, sums=True)),
}
