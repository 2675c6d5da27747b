"""Symbolic definitions of quantizers with constant ranges: QuantizeLinear, DequantizeLinear and FakeQuantize."""

from __future__ import annotations

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ZERO, Expr, number
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.element_types import ELEMENT_TYPES
from graphpass.ir.values import INTEGERS
from graphpass.verify.structure.conditions import on_indices
from graphpass.verify.structure.tensors import closed, definitions_of

#: Relative error of ranges that converters compute in f32 from a scale and a zero point.
_ERROR = 2.0**-22


def _level(element: Element, operand: Expr, step: float, origin: float, levels: int) -> Expr:
    """Return ``round(operand / step + origin)``, an integer from 0 to ``levels - 1``.

    Raises:
        UnknownError: The range is empty.
    """
    if step <= 0:
        raise UnknownError("the range of a quantizer is empty")
    definitions = definitions_of(element)

    def rounded(body: Expr) -> Expr:
        # Positions before and after an append are rounded separately.
        if body.op == "choose" and on_indices(body.args[0]):
            return ex.choose(body.args[0], *map(rounded, body.args[1:]))
        result = definitions.abstract("level", (number(levels),), (body,), ())
        return ex.read(result.args[0], result.args[1:], "int")

    return rounded(definitions.algebra.cases(ex.add(ex.divide(operand, number(step)), number(origin))))


def _parameter(element: Element, port: int) -> Steps:
    """Return the scale or zero point of the element, of QuantizeLinear or DequantizeLinear."""
    value, attributes = element.node.input(port), native_attributes(element.node)
    if value is None:
        return ZERO
    axis, block = attributes.get("axis", 1) % len(element.index), attributes.get("block_size", 0)
    if block:
        return (yield value, element.index_with(axis, ex.floor_divide(element.index[axis], number(block))))
    is_along_axis = value.rank == 1 and element.elements.shape(value) != (ex.ONE,)
    return (yield value, (element.index[axis],) if is_along_axis else (ZERO,) * (value.rank or 0))


@closed
def _quantize(element: Element) -> Steps:
    element_type = element.value.element_type
    if element_type not in INTEGERS:
        raise UnknownError(f"rounding to {element_type} has no definition")
    scale, origin = (yield from _parameter(element, 1)).as_number, (yield from _parameter(element, 2)).as_number
    if scale is None or origin is None:
        raise UnknownError("the scale of a quantizer is computed, or differs between channels")
    levels = 2 ** ELEMENT_TYPES[element_type].bits
    least = 0 if element_type.startswith("u") else -levels // 2
    operand = yield element.node.source(), element.index
    return ex.add(_level(element, operand, float(scale), int(origin) - least, levels), number(least))


def _dequantize(element: Element) -> Steps:
    scale, origin = (yield from _parameter(element, 1)), (yield from _parameter(element, 2))
    whole = yield element.node.source(), element.index
    return ex.multiply(ex.subtract(whole, origin), scale)


@closed
def _fake_quantize(element: Element) -> Steps:
    levels = int(native_attributes(element.node)["levels"])
    bounds: list[float] = []
    for port in range(1, 5):
        bound = (yield element.broadcast(port)).as_number
        if bound is None:
            raise UnknownError("the range of a quantizer is computed, or differs between channels")
        bounds.append(float(bound))
    low, high, first, last = bounds
    steps = (high - low) / (levels - 1), (last - first) / (levels - 1)
    if not steps[1]:
        raise UnknownError("the range of a quantizer is empty")
    operand = yield element.broadcast(0)
    level = _level(element, operand, steps[0], _whole(-low / steps[0], levels), levels)
    own = ex.add(level, number(_whole(first / steps[1], levels)))
    return own if steps[1] == 1 else ex.multiply(own, number(steps[1]))


def _whole(origin: float, levels: int) -> float:
    """Return the integer that ``origin`` equals up to rounding; otherwise ``origin``."""
    return round(origin) if abs(origin - round(origin)) < levels * _ERROR else origin


RULES: dict[str, Rule] = {"DequantizeLinear": _dequantize, "FakeQuantize": _fake_quantize, "QuantizeLinear": _quantize}
