"""Symbolic definitions of matrix products, as sums over the contracted axis."""

from __future__ import annotations

from functools import reduce

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.open_sizes import einsum_axes
from graphpass.analysis.symbolic.operators.elementwise import fits
from graphpass.analysis.symbolic.operators.reductions import product_term, summed_size
from graphpass.analysis.symbolic.places import broadcast_index, index_along
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.values import INTEGERS
from graphpass.verify.structure.tensors import closed, definitions_of


def _product(element: Element, swaps: tuple[bool, bool]) -> Steps:
    """Return an element of a matrix product: a sum over the contracted axis."""
    count = summed_size(element, swaps)
    bound = index_along("k", count)
    body = yield from product_term(element, swaps, bound)
    _refuse_large(element, body)
    return body if bound is ZERO else definitions_of(element).sum(body, bound)


def _refuse_large(element: Element, term: Expr) -> None:
    """Check that the integer type of a product represents each term.

    Raises:
        UnknownError: It may not.
    """
    element_type = element.value.element_type
    if element_type in INTEGERS and not fits(element_type, term):
        raise UnknownError(f"numbers may be out of the range of {element_type}")


@closed
def _matmul(element: Element) -> Steps:
    attributes = element.node.attributes
    return (yield from _product(element, (bool(attributes["transpose_a"]), bool(attributes["transpose_b"]))))


@closed
def _fused_matmul(element: Element) -> Steps:
    attributes = element.node.attributes
    if "transpose_a" not in attributes:
        raise UnknownError("transBatchA and transBatchB have no definition")
    result = yield from _product(element, (attributes["transpose_a"], attributes["transpose_b"]))
    return ex.multiply(number(float(attributes["alpha"])), result)


@closed
def _gemm(element: Element) -> Steps:
    attributes = native_attributes(element.node)
    result = yield from _product(element, (bool(attributes.get("transA", 0)), bool(attributes.get("transB", 0))))
    result = ex.multiply(number(float(attributes.get("alpha", 1.0))), result)
    if element.node.input(2) is None:
        return result
    bias = yield element.broadcast(2)
    return ex.add(result, ex.multiply(number(float(attributes.get("beta", 1.0))), bias))


@closed
def _einsum(element: Element) -> Steps:
    """Return a sum of products over all labels that do not occur in the result."""
    node = element.node
    operands, result = einsum_axes(node)
    shapes = [element.shape(port) for port in range(len(operands))]
    places = dict(zip(result, element.index, strict=True))
    bounds = []
    for operand, shape in zip(operands, shapes, strict=True):
        for label, size in zip(operand, shape, strict=True):
            if label not in places and size is not ONE:
                bounds.append(ex.index(f"k{label}", size))
                places[label] = bounds[-1]
    factors = []
    for port, (operand, shape) in enumerate(zip(operands, shapes, strict=True)):
        own = broadcast_index((places.get(label, ZERO) for label in operand), shape)
        factors.append((yield node.source(port), own))
    body = reduce(ex.multiply, factors)
    _refuse_large(element, body)
    return definitions_of(element).sum(body, *bounds) if bounds else body


RULES: dict[str, Rule] = {"Einsum": _einsum, "FusedMatMul": _fused_matmul, "Gemm": _gemm, "MatMul": _matmul}
