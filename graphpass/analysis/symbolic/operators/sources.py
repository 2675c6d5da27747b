"""Rules of ConstantOfShape, If, Range, ShapeOf and Trilu."""

from __future__ import annotations

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Rule, Steps, UnknownError, chosen
from graphpass.analysis.symbolic.expressions import ZERO, number
from graphpass.ir.values import HALVES, INTEGERS


def _shape_of(element: Element) -> Steps:
    sizes = element.shape(0)[element.node.attributes.get("start") : element.node.attributes.get("end")]
    yield from ()
    if not sizes:
        raise UnknownError("it returns no sizes")
    return chosen(sizes, element.index)


def _range(element: Element) -> Steps:
    start = yield element.node.source(0), ()
    step = yield element.node.source(2), ()
    result, element_type = ex.add(start, ex.multiply(step, element.index[0])), element.value.element_type
    if element_type in INTEGERS and result.sort == "real":
        raise UnknownError("its bounds are real numbers, which are rounded to integers")
    return ex.round_to(element_type, result) if element_type in HALVES else result


def _filled(element: Element) -> Steps:
    value = element.node.attributes["value"]
    constant = number(getattr(value, "item", lambda: value)())
    yield from ()
    return ex.holds(constant) if element.value.element_type == "boolean" else constant


def _trilu(element: Element) -> Steps:
    node = element.node
    offset = (yield node.source(1), (ZERO,) * (node.source(1).rank or 0)) if node.input(1) is not None else ZERO
    distance = ex.subtract(ex.subtract(element.index[-1], element.index[-2]), offset)
    kept = ex.at_most(ZERO, distance) if node.attributes["upper"] else ex.at_most(distance, ZERO)
    expr = yield node.source(), element.index
    return ex.choose(kept, expr, ex.FALSE if expr.sort == "bool" else ZERO)


def _if(element: Element) -> Steps:
    node = element.node
    if len(node.inputs) != 3 or "joins" not in node.attributes:
        raise UnknownError("the values of its branches are not known")
    condition = yield node.source(0), (ZERO,) * (node.source(0).rank or 0)
    return ex.choose(ex.holds(condition), (yield node.source(1), element.index), (yield node.source(2), element.index))


RULES: dict[str, Rule] = {"ConstantOfShape": _filled, "If": _if, "Range": _range, "ShapeOf": _shape_of, "Trilu": _trilu}
