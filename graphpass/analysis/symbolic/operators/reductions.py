"""Sums and other reductions along axes."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number

#: Elements of the largest axis that a sum or product is written out along.
_MOST_TERMS = 64


def _cum_sum(element: Element) -> Steps:
    node = element.node
    axis = (yield node.source(1), (ZERO,) * (node.source(1).rank or 0)).as_number
    if node.attributes.get("exclusive") or node.attributes.get("reverse") or not isinstance(axis, int):
        raise UnknownError("it sums from the end, or along a computed axis")
    axis %= len(element.index)
    bound = ex.index("summed", element.own_shape[axis])
    body = yield node.source(), (*element.index[:axis], bound, *element.index[axis + 1 :])
    if body.sort == "real":
        raise UnknownError("it sums real numbers")
    return ex.running_sum(ex.choose(body, ONE, ZERO) if body.sort == "bool" else body, bound, element.index[axis])


def _reduced(function: Callable[[Expr, Expr], Expr], sums: bool = False) -> Rule:
    def rule(element: Element) -> Steps:
        node, sizes = element.node, element.shape(0)
        has_axes = "axes" in node.attributes or node.input(1) is not None
        reduced = (yield from element.axes()) if has_axes else range(len(sizes))
        axes = {axis % len(sizes) for axis in reduced}
        keeps = len(element.index) == len(sizes)
        kept = iter(element.index)
        places = []
        for axis in range(len(sizes)):
            own = next(kept) if keeps or axis not in axes else ZERO
            places.append(ZERO if axis in axes else own)
        along = [axis for axis in sorted(axes) if sizes[axis] is not ONE]
        if not along:
            return (yield node.source(), tuple(places))
        count = sizes[along[0]].as_number
        if len(along) > 1 or not (sums or (isinstance(count, int) and count <= _MOST_TERMS)):
            raise UnknownError("it reduces axes of unknown size")
        if isinstance(count, int) and count <= _MOST_TERMS:
            terms = []
            for place in range(count):
                places[along[0]] = number(place)
                terms.append((yield node.source(), tuple(places)))
            return reduce(function, terms)
        bound = ex.index("summed", sizes[along[0]])
        places[along[0]] = bound
        body = yield node.source(), tuple(places)
        if body.sort == "real":
            raise UnknownError("it sums real numbers")
        return ex.running_sum(body, bound, ex.subtract(sizes[along[0]], ONE))

    return rule


def _matmul(element: Element) -> Steps:
    """Multiply along an axis of few elements, as frequencies and positions are."""
    node, own = element.node, element.own_shape
    sizes = element.shape(0), element.shape(1)
    if min(map(len, sizes)) < 2:
        raise UnknownError("it multiplies a vector")
    swapped = bool(node.attributes["transpose_a"]), bool(node.attributes["transpose_b"])
    count = sizes[0][-2 if swapped[0] else -1].as_number
    if not isinstance(count, int) or count > _MOST_TERMS:
        raise UnknownError("it sums along an axis of many elements")
    row, column = element.index[-2:]
    total: Expr = ZERO
    for place in map(number, range(count)):
        ends = (place, row) if swapped[0] else (row, place), (column, place) if swapped[1] else (place, column)
        factors = []
        for port in (0, 1):
            batch = sizes[port][:-2]
            start = len(own) - 2 - len(batch)
            leading = tuple(
                ZERO if size is ONE else index for size, index in zip(batch, element.index[start:-2], strict=True)
            )
            factors.append((yield node.source(port), (*leading, *ends[port])))
        total = ex.add(total, ex.multiply(*factors))
    return total


RULES: dict[str, Rule] = {
    "CumSum": _cum_sum,
    "MatMul": _matmul,
    "ReduceLogicalAnd": _reduced(ex.conjunction),
    "ReduceLogicalOr": _reduced(ex.disjunction),
    "ReduceMax": _reduced(ex.maximum),
    "ReduceMin": _reduced(ex.minimum),
    "ReduceProd": _reduced(ex.multiply),
    "ReduceSum": _reduced(ex.add, sums=True),
}
