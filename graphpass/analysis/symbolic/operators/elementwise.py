"""Rules of elementwise operators: arithmetic, functions, comparisons and conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import divided, is_natural
from graphpass.analysis.symbolic.constants import Table
from graphpass.analysis.symbolic.elements import Element, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.nodes import Monomial
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.element_types import ELEMENT_TYPES
from graphpass.ir.operators import ANDS, CASTS, NOTS, ORS
from graphpass.ir.values import HALVES, INTEGERS, REALS

#: The lowest number of f32, which bounds all finite numbers.
_LOWEST = -3.4028234663852886e38


def _elementwise(function: Callable[..., Expr]) -> Rule:
    def rule(element: Element) -> Steps:
        operands = []
        for port in range(len(element.node.inputs)):
            operands.append((yield element.broadcast(port)))
        result = function(*operands)
        return ex.round_to(element.value.element_type, result) if element.value.element_type in HALVES else result

    return rule


#: Bits of lengths, positions and their products, in integers of 32 bits or more.
_BITS = 15


def fits(element_type: str, expr: Expr) -> bool:
    """Return whether an integer type represents a number, for any length up to 2^15.

    Args:
        element_type: Name of the type.
        expr: The number.
    """
    if expr.op == "choose":
        return all(fits(element_type, branch) for branch in expr.args[1:])
    bits = ELEMENT_TYPES[element_type].bits
    least = 0 if element_type.startswith("u") else -(2 ** (bits - 1))
    if bits < 32 or expr.op == "number":
        below, above = ex.subtract(number(least - 1), expr), ex.subtract(expr, number(least + 2**bits))
        return expr.sort == "int" and all(is_natural(ex.subtract(ex.negative(side), ONE)) for side in (below, above))
    if least == 0 and not (expr.sort == "int" and is_natural(expr)):
        return False
    terms = ex.polynomial(expr) if expr.sort == "int" else {}
    if any(atom.op == "read" and getattr(atom.args[0], "wraps", False) for monomial in terms for atom in monomial):
        return False
    return all(abs(factor) < 2 ** (bits - 2 - _bits(monomial)) for monomial, factor in terms.items())


def _bits(monomial: Monomial) -> int:
    """Return the bits of a product.

    All its lengths together count as one factor, and choices from -1 to 1 as none.
    """
    monomial = tuple(atom for atom in monomial if not _is_unit(atom))
    others = sum(atom.op not in {"index", "length"} for atom in monomial)
    return _BITS * max(others, bool(monomial))


def _is_unit(atom: Expr) -> bool:
    """Return whether an integer is a choice of numbers from -1 to 1."""
    values = [branch.as_number for branch in atom.args[1:]] if atom.op == "choose" else [None]
    return all(value is not None and abs(value) <= 1 for value in values)


def _arithmetic(function: Callable[..., Expr]) -> Rule:
    """Return the rule of a sum, product or negative, which must not overflow in integers."""

    def rule(element: Element) -> Steps:
        result, element_type = (yield from _elementwise(function)(element)), element.value.element_type
        if element_type in INTEGERS and not fits(element_type, result):
            raise UnknownError(f"numbers may be out of the range of {element_type}")
        return result

    return rule


def _folded(function: Callable[[Expr, Expr], Expr]) -> Rule:
    return _elementwise(lambda *operands: reduce(function, operands))


def _maximum(*operands: Expr) -> Expr:
    above = [operand for operand in operands if operand.as_number is None or operand.as_number > _LOWEST]
    if len(above) == 1 and not any(part.as_number == -math.inf for part in ex.walk(above[0])):
        # Scores and masks are bounded by the lowest number, for example after an Add to masked scores.
        return above[0]
    return reduce(ex.maximum, operands)


def _computed(name: str, compute: Callable[..., float], *operands: Expr, sort: ex.Sort = "real") -> Expr:
    """Return a function of numbers; of constants, its value unless it is infinite or undefined."""
    values = [value for operand in operands if (value := operand.as_number) is not None]
    try:
        return number(compute(*map(float, values))) if len(values) == len(operands) else ex.apply(name, operands, sort)
    except (OverflowError, ValueError):
        return ex.apply(name, operands, sort)


def _function(name: str, compute: Callable[[float], float]) -> Rule:
    def of(operand: Expr) -> Expr:
        if operand.sort == "int" and name in {"ceiling", "floor"}:
            return operand
        return _computed(name, compute, operand)

    return _elementwise(of)


def _same(element: Element) -> Steps:
    expr = yield element.node.source(), element.index
    source, result = element.node.source().element_type, element.value.element_type
    if result == "boolean":
        return ex.holds(expr)
    if expr.sort == "bool":
        return ex.choose(expr, ONE, ZERO)
    if result != source and (result not in INTEGERS | REALS or not (result in REALS or fits(result, expr))):
        raise UnknownError(f"numbers may be out of the range of {result}")
    if source in REALS and result in INTEGERS and expr.sort == "real":
        return _computed(_truncation(result, expr), math.trunc, expr, sort="int")
    return ex.round_to(result, expr) if result in HALVES and source != result else expr


def _truncation(element_type: str, expr: Expr) -> str:
    """Return the function that rounds a real number to an integer type.

    It is the same for all types if the number is computed from lengths and positions alone.
    """
    is_of_data = any(
        part.op == "read" and part.sort == "real" and not isinstance(part.args[0], Table) for part in ex.walk(expr)
    )
    return f"truncate_{element_type}" if is_of_data and element_type != "i64" else "truncate"


def _divide(element: Element) -> Steps:
    left, right = (yield element.broadcast(0)), (yield element.broadcast(1))
    if element.value.element_type in REALS:
        return ex.divide(left, right)
    # OpenVINO has an attribute for floor division; ONNX truncates.
    floors = element.node.attributes.get("floors", False)
    # A model that runs does not divide by 0.
    if not is_natural(right) or not (floors or is_natural(left)):
        raise UnknownError("it divides integers that may be negative")
    quotient = divided(left, right)
    return quotient[0] if quotient is not None else ex.floor_divide(left, right)


def _modulo(element: Element) -> Steps:
    left, right = (yield element.broadcast(0)), (yield element.broadcast(1))
    if element.value.element_type in REALS or not (is_natural(left) and is_natural(right)):
        raise UnknownError("dialects define remainders of real and negative numbers differently")
    quotient = divided(left, right)
    return quotient[1] if quotient is not None else ex.modulo(left, right)


def _power(base: Expr, exponent: Expr) -> Expr:
    is_square = exponent.as_number == 2 and base.as_number is None
    return ex.multiply(base, base) if is_square else _computed("power", math.pow, base, exponent)


def _power_of(element: Element) -> Steps:
    if element.value.element_type in REALS:
        return (yield from _elementwise(_power)(element))
    base, exponent = (yield element.broadcast(0)), (yield element.broadcast(1)).as_number
    if base.sort != "int" or exponent != 2:
        raise UnknownError("powers of integers are defined for exponent 2 only")
    result = ex.multiply(base, base)
    if not fits(element.value.element_type, result):
        raise UnknownError(f"numbers may be out of the range of {element.value.element_type}")
    return result


def _logical(function: Callable[..., Expr]) -> Rule:
    return _elementwise(lambda *operands: function(*map(ex.holds, operands)))


def _bitwise(function: Callable[..., Expr]) -> Rule:
    def rule(*operands: Expr) -> Expr:
        if all(operand.sort == "bool" for operand in operands):
            return function(*operands)
        raise UnknownError("its operands are integers, expected booleans")

    return _elementwise(rule)


def _sign(operand: Expr) -> Expr:
    is_positive, is_negative = ex.less(ZERO, operand), ex.less(operand, ZERO)
    return ex.choose(is_positive, ONE, ex.choose(is_negative, ex.negative(ONE), ZERO))


def sigmoid(operand: Expr) -> Expr:
    """Return ``1 / (1 + exp(-operand))``."""
    return ex.divide(ONE, ex.add(ONE, ex.apply("exp", (ex.negative(operand),))))


#: Operators of attention.
_SHARES = {"ScaledDotProductAttention", "Softmax"}


def _is_nan(element: Element) -> Steps:
    """Return false: attention returns NaN only for fully masked queries, which are padding.

    Raises:
        UnknownError: The operand is not the result of attention.
    """
    graph = element.elements.graph
    if graph.producer(graph.look_through(element.node.source(), CASTS)).op not in _SHARES:
        raise UnknownError("its operand is not the result of attention")
    yield from ()
    return ex.FALSE


def _clip(element: Element) -> Steps:
    expr = yield element.broadcast(0)
    attributes = native_attributes(element.node)
    if element.value.element_type in INTEGERS and any(attributes.get(end, 0) % 1 for end in ("min", "max")):
        raise UnknownError("integers are clamped to fractions")
    for port, name, function in ((1, "min", ex.maximum), (2, "max", ex.minimum)):
        if element.node.input(port) is not None:
            expr = function(expr, (yield element.node.source(port), ()))
        elif name in attributes:
            expr = function(expr, number(float(attributes[name])))
    return expr


RULES: dict[str, Rule] = {
    **dict.fromkeys(CASTS, _same),
    **dict.fromkeys(ANDS - {"BitwiseAnd"}, _logical(ex.conjunction)),
    **dict.fromkeys(ORS - {"BitwiseOr"}, _logical(ex.disjunction)),
    **dict.fromkeys(NOTS - {"BitwiseNot"}, _logical(ex.negate)),
    "Abs": _arithmetic(lambda operand: ex.maximum(operand, ex.negative(operand))),
    "Add": _arithmetic(ex.add),
    "BitwiseAnd": _bitwise(ex.conjunction),
    "BitwiseNot": _bitwise(ex.negate),
    "BitwiseOr": _bitwise(ex.disjunction),
    "Ceiling": _function("ceiling", math.ceil),
    "Clamp": _clip,
    "Clip": _clip,
    "Cos": _function("cos", math.cos),
    "Divide": _divide,
    "Equal": _elementwise(ex.equal),
    "Erf": _function("erf", math.erf),
    "Exp": _function("exp", math.exp),
    "Floor": _function("floor", math.floor),
    "FloorMod": _modulo,
    "Greater": _elementwise(lambda left, right: ex.less(right, left)),
    "GreaterEqual": _elementwise(lambda left, right: ex.at_most(right, left)),
    "IsNaN": _is_nan,
    "Less": _elementwise(ex.less),
    "LessEqual": _elementwise(ex.at_most),
    "Log": _function("log", math.log),
    "LogicalXor": _logical(lambda left, right: ex.negate(ex.equal(left, right))),
    "Maximum": _elementwise(_maximum),
    "Minimum": _folded(ex.minimum),
    "Mod": _modulo,
    "Multiply": _arithmetic(ex.multiply),
    "Negative": _arithmetic(ex.negative),
    "NotEqual": _elementwise(lambda left, right: ex.negate(ex.equal(left, right))),
    "Power": _power_of,
    "Reciprocal": _elementwise(lambda operand: ex.divide(ONE, operand)),
    "Relu": _elementwise(lambda operand: ex.maximum(operand, ZERO)),
    "Select": _elementwise(lambda condition, then, otherwise: ex.choose(ex.holds(condition), then, otherwise)),
    "Sigmoid": _elementwise(sigmoid),
    "Sign": _elementwise(_sign),
    "Sin": _function("sin", math.sin),
    "SoftPlus": _elementwise(lambda operand: ex.apply("log", (ex.add(ONE, ex.apply("exp", (operand,))),))),
    "Sqrt": _function("sqrt", math.sqrt),
    "Subtract": _arithmetic(ex.subtract),
    "Tanh": _function("tanh", math.tanh),
}
