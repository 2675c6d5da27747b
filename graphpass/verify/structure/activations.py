"""Symbolic definitions of fused activations: Gelu, FastGelu, QuickGelu and Swish."""

from __future__ import annotations

import math

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.operators.elementwise import sigmoid
from graphpass.dialects.attributes import native_attributes


def swish(operand: Expr, beta: Expr = ONE) -> Expr:
    """Return ``operand * sigmoid(beta * operand)``.

    Args:
        operand: Element of the input.
        beta: Factor in the sigmoid; 1 for SiLU.
    """
    return ex.multiply(operand, sigmoid(ex.multiply(beta, operand)))


def gelu(operand: Expr, approximate: bool) -> Expr:
    """Return GELU of an element.

    Args:
        operand: Element of the input.
        approximate: Whether to approximate by tanh; otherwise exact by erf.
    """
    if not approximate:
        inner = ex.apply("erf", (ex.multiply(operand, number(math.sqrt(0.5))),))
    else:
        cube = ex.multiply(operand, ex.multiply(operand, operand))
        inner = ex.apply(
            "tanh", (ex.multiply(number(math.sqrt(2 / math.pi)), ex.add(operand, ex.multiply(number(0.044715), cube))),)
        )
    return ex.multiply(number(0.5), ex.multiply(operand, ex.add(ONE, inner)))


def _of_gelu(element: Element) -> Steps:
    operand = yield element.broadcast(0)
    attributes = native_attributes(element.node)
    mode = str(attributes.get("approximation_mode", attributes.get("approximate", "none"))).lower()
    if mode not in {"erf", "none", "tanh"}:
        raise UnknownError(f"approximation {mode} has no definition")
    return gelu(operand, mode == "tanh")


def _quick_gelu(element: Element) -> Steps:
    operand = yield element.broadcast(0)
    return swish(operand, number(float(native_attributes(element.node).get("alpha", 1.702))))


def _of_swish(element: Element) -> Steps:
    operand = yield element.broadcast(0)
    if element.node.input(1) is None:
        alpha = native_attributes(element.node).get("alpha", 1.0)
        return swish(operand, number(float(alpha)))
    return swish(operand, (yield element.node.source(1), (ZERO,) * (element.node.source(1).rank or 0)))


def _fast_gelu(element: Element) -> Steps:
    operand = yield element.broadcast(0)
    if element.node.input(1) is not None:
        operand = ex.add(operand, (yield element.broadcast(1)))
    return gelu(operand, approximate=True)


RULES: dict[str, Rule] = {"FastGelu": _fast_gelu, "Gelu": _of_gelu, "QuickGelu": _quick_gelu, "Swish": _of_swish}
