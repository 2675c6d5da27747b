"""Symbolic definitions of reductions along axes of any size, and of CumSum."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import reduce

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Request, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr
from graphpass.analysis.symbolic.operators.reductions import reduced_axes, unreduced
from graphpass.analysis.symbolic.places import index_along
from graphpass.analysis.symbolic.table import TABLE
from graphpass.ir.values import REALS
from graphpass.verify.structure.tensors import closed, definitions_of


def _along_axes(element: Element) -> Generator[Request, Expr, tuple[Expr, list[Expr]]]:
    """Return an element of a reduction's operand, and the indices along its axes."""
    sizes = element.shape(0)
    axes = yield from reduced_axes(element)
    places = {axis: index_along(f"k{axis}", sizes[axis]) for axis in axes}
    body = yield element.node.source(), unreduced(element, places)
    return body, [place for place in places.values() if place is not ZERO]


def _summed(element: Element, term: Callable[[Expr], Expr] = lambda value: value) -> Steps:
    body, bounds = yield from _along_axes(element)
    return definitions_of(element).sum(term(body), *bounds) if bounds else term(body)


def _mean(element: Element) -> Steps:
    body, bounds = yield from _along_axes(element)
    count = reduce(ex.multiply, (bound.args[1] for bound in bounds), ONE)
    return ex.divide(definitions_of(element).sum(body, *bounds), count) if bounds else body


def _length(element: Element) -> Steps:
    return ex.apply("sqrt", ((yield from _summed(element, _square)),))


def _square(value: Expr) -> Expr:
    return ex.multiply(value, value)


def _absolute(value: Expr) -> Expr:
    return ex.maximum(value, ex.negative(value))


def _of_reals(define: Rule, of_integers: Rule | None = None) -> Rule:
    """Return the rule of a reduction that ``define`` describes for real numbers.

    Integers may be rounded or exceed the range of their type, unless there is a rule ``of_integers``.
    """
    closed_rule = closed(define)

    def rule(element: Element) -> Steps:
        if element.value.element_type in REALS:
            return (yield from closed_rule(element))
        if of_integers is None:
            raise UnknownError("it reduces integers, which it may round or exceed the range of")
        return (yield from of_integers(element))

    return rule


def _extreme(op: str) -> Rule:
    """Return the rule of a maximum or minimum along axes.

    Large axes, and axes of unknown size, are bound indices of a definition.
    """
    exact = TABLE.elements[op]

    @closed
    def defined(element: Element) -> Steps:
        body, bounds = yield from _along_axes(element)
        if not bounds:
            return body
        definitions = definitions_of(element)
        result = definitions.abstract(op, (), (definitions.algebra.normal(body),), bounds)
        return ex.read(result.args[0], result.args[1:], body.sort)

    def rule(element: Element) -> Steps:
        try:
            return (yield from exact(element))
        except UnknownError:
            return (yield from defined(element))

    return rule


@closed
def _real_cum_sum(element: Element) -> Steps:
    """Return an element of a CumSum as a masked sum.

    Raises:
        UnknownError: The axis is computed.
    """
    node, attributes = element.node, element.node.attributes
    axis = (yield node.source(1), (ZERO,) * (node.source(1).rank or 0)).as_number
    if not isinstance(axis, int):
        raise UnknownError("the axis is computed")
    axis %= len(element.index)
    own, size = element.index[axis], element.own_shape[axis]
    bound = index_along("k", size)
    body = yield node.source(), element.index_with(axis, bound)
    first, last = (own, bound) if attributes.get("reverse") else (bound, own)
    counts = ex.less(first, last) if attributes.get("exclusive") else ex.at_most(first, last)
    body = ex.choose(counts, body, ZERO)
    return body if bound is ZERO else definitions_of(element).sum(body, bound)


def _cum_sum(element: Element) -> Steps:
    is_real = element.value.element_type in REALS
    return (yield from (_real_cum_sum if is_real else TABLE.elements["CumSum"])(element))


RULES: dict[str, Rule] = {
    "CumSum": _cum_sum,
    "ReduceL1": _of_reals(lambda element: _summed(element, _absolute)),
    "ReduceL2": _of_reals(_length),
    "ReduceMax": _extreme("ReduceMax"),
    "ReduceMean": _of_reals(_mean),
    "ReduceMin": _extreme("ReduceMin"),
    "ReduceSum": _of_reals(_summed, TABLE.elements["ReduceSum"]),
    "ReduceSumSquare": _of_reals(lambda element: _summed(element, _square)),
}
