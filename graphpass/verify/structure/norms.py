"""Symbolic definitions of norms along the last axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Elements, Request, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import Expr, number
from graphpass.analysis.symbolic.places import broadcast_index
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.graph import Node
from graphpass.verify.structure.tensors import closed, definitions_of


def _moment(element: Element, operand: Expr, bound: Expr) -> Expr:
    """Return the mean of ``operand`` over the index ``bound``."""
    return ex.divide(definitions_of(element).sum(operand, bound), bound.args[1])


def _inverse_root(element: Element, mean: Expr, epsilon: float) -> Expr:
    return definitions_of(element).algebra.power(ex.add(mean, number(float(epsilon))), -0.5)


def _operand(element: Element) -> Iterable[Request]:
    return (element.broadcast(0),)


def _normalized(
    element: Element, epsilon: float, *, centers: bool, summed: Callable[[Element], Iterable[Request]] = _operand
) -> Steps:
    """Return the sum of requests, normalized along the last axis; ``centers`` subtracts the mean."""

    def total(place: Expr) -> Steps:
        first, *others = summed(replace(element, index=(*element.index[:-1], place)))
        result = yield first
        for other in others:
            result = ex.add(result, (yield other))
        return result

    return (yield from _normalized_total(element, total, element.shape(0)[-1], epsilon, centers=centers))


def _normalized_total(
    element: Element, total: Callable[[Expr], Steps], size: Expr, epsilon: float, *, centers: bool
) -> Steps:
    """Return an element of ``total``, a function of the last index, normalized along it."""
    bound = ex.index("k", size)
    along = yield from total(bound)
    own = yield from total(element.index[-1])
    algebra = definitions_of(element).algebra
    if centers:
        mean = algebra.normal(_moment(element, along, bound))
        along, own = ex.subtract(along, mean), ex.subtract(own, mean)
    return ex.multiply(own, _inverse_root(element, _moment(element, ex.multiply(along, along), bound), epsilon))


def _last_axis(element: Element) -> None:
    rank = len(element.shape(0))
    if int(native_attributes(element.node).get("axis", -1)) % rank != rank - 1:
        raise UnknownError("normalization covers several axes")


def _weight(element: Element, port: int) -> Steps:
    value = element.node.source(port)
    sizes = element.elements.shape(value)
    return (yield value, broadcast_index(element.index[len(element.index) - len(sizes) :], sizes))


@closed
def _rms_norm(element: Element) -> Steps:
    """Return an element of RMSNormalization, SimplifiedLayerNormalization or OpenVINO's internal RMS."""
    _last_axis(element)
    result = yield from _normalized(element, _epsilon(element), centers=False)
    return ex.multiply(result, (yield from _weight(element, 1)))


@closed
def _layer_norm(element: Element) -> Steps:
    _last_axis(element)
    if element.value.port:
        raise UnknownError("the outputs for mean and inverse deviation have no definition")
    result = yield from _normalized(element, _epsilon(element), centers=True)
    result = ex.multiply(result, (yield from _weight(element, 1)))
    return result if element.node.input(2) is None else ex.add(result, (yield from _weight(element, 2)))


def _epsilon(element: Element) -> float:
    return float(native_attributes(element.node).get("epsilon", 1e-5))


def _skip_norm(centers: bool) -> Rule:
    """Return the rule of SkipLayerNormalization, with outputs 0 (norm) and 3 (sum of the inputs)."""

    @closed
    def rule(element: Element) -> Steps:
        node = element.node
        bias = 4 if centers else 3
        sources = (0, 1, *((bias,) if node.input(bias) is not None else ()))
        if element.value.port == 3:
            total = yield element.broadcast(sources[0])
            for port in sources[1:]:
                total = ex.add(total, (yield element.broadcast(port)))
            return total
        if element.value.port:
            raise UnknownError("the outputs for mean and inverse deviation have no definition")
        epsilon = float(native_attributes(node).get("epsilon", 1e-12))
        result_of_sum = [value for value in node.outputs if value.port == 3]

        def summed(at: Element) -> Iterable[Request]:
            return [(value, at.index) for value in result_of_sum] or [at.broadcast(port) for port in sources]

        result = yield from _normalized(element, epsilon, centers=centers, summed=summed)
        result = ex.multiply(result, (yield from _weight(element, 2)))
        return ex.add(result, (yield from _weight(element, 3))) if centers and node.input(3) is not None else result

    return rule


@closed
def _embed_norm(element: Element) -> Steps:
    """Return an element of com.microsoft EmbedLayerNormalization, with outputs 0 (norm) and 2 (sum of embeddings).

    Source: docs/ContribOperators.md of ONNX Runtime.

    Raises:
        UnknownError: The output is the index of the mask.
    """
    node = element.node
    ids, segments, words, positions, types = range(5)
    if element.value.port not in {0, 2}:
        raise UnknownError("the output for the index of the mask has no definition")
    row, token = element.index[:2]
    rows = [(words, (yield node.source(ids), (row, token)))]
    place = node.input(8)
    at = token if place is None else (yield place, broadcast_index((row, token), element.elements.shape(place)))
    rows.append((positions, at))
    if node.input(segments) is not None and node.input(types) is not None:
        rows.append((types, (yield node.source(segments), (row, token))))

    def total(channel: Expr) -> Steps:
        terms = []
        for port, own in rows:
            terms.append((yield node.source(port), (own, channel)))
        return reduce(ex.add, terms)

    if element.value.port:
        return (yield from total(element.index[-1]))
    epsilon, size = float(native_attributes(node).get("epsilon", 1e-12)), element.shape(words)[-1]
    result = yield from _normalized_total(element, total, size, epsilon, centers=True)
    return ex.add(ex.multiply(result, (yield from _weight(element, 5))), (yield from _weight(element, 6)))


@closed
def _mvn(element: Element) -> Steps:
    attributes = native_attributes(element.node)
    axes = yield from element.axes()
    rank = len(element.index)
    if [axis % rank for axis in axes] != [rank - 1] or not attributes.get("normalize_variance", True):
        raise UnknownError("expected normalization of mean and variance along the last axis")
    if str(attributes.get("eps_mode", "inside_sqrt")).lower() != "inside_sqrt":
        raise UnknownError("epsilon is added outside the square root")
    return (yield from _normalized(element, float(attributes["eps"]), centers=True))


def _embedded_size(elements: Elements, node: Node, axis: int) -> Expr:
    """Return a size of embeddings, from those of ids and table."""
    return elements.shape(node.source(2))[-1] if axis == 2 else elements.shape(node.source(0))[axis]


#: Functions that return the size of any result along an axis.
SIZES = {"EmbedLayerNormalization": _embedded_size}

RULES: dict[str, Rule] = {
    "EmbedLayerNormalization": _embed_norm,
    "LayerNormalization": _layer_norm,
    "MVN": _mvn,
    "RMS": _rms_norm,
    "RMSNormalization": _rms_norm,
    "SimplifiedLayerNormalization": _rms_norm,
    "SkipLayerNormalization": _skip_norm(centers=True),
    "SkipSimplifiedLayerNormalization": _skip_norm(centers=False),
}
