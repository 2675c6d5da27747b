"""Symbolic definition of GroupQueryAttention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.rotary import rotated
from graphpass.ir.graph import Node, Value
from graphpass.ir.operators import NEW_TOKENS, NORM_WEIGHTS, stores_window
from graphpass.verify.structure.attention import HeadLayout, by_heads, known_heads
from graphpass.verify.structure.tensors import closed, definitions_of


@dataclass(frozen=True, slots=True)
class _Norm:
    """RMS norm of each head inside an attention operator, with weight ``[head_dim]``."""

    weight: Value
    epsilon: float
    heads: int


def _norm_inside(node: Node, port: int, heads: int) -> _Norm | None:
    """Return the operator's norm of query (port 0) or key (port 1); ``None`` without one."""
    weight, attributes = node.input(NORM_WEIGHTS[port]), node.attributes
    if weight is None:
        return None
    return _Norm(
        weight, float(attributes.get(f"{'qk'[port]}_norm_epsilon", attributes.get("qk_norm_epsilon", 1e-6))), heads
    )


def _normed(
    element: Element, read: HeadLayout, norm: _Norm | None, place: tuple[Expr, Expr, Expr], channel: Expr
) -> Steps:
    """Return an element of a head, after the operator's norm if it has one."""
    result = yield read.place(*place, channel)
    if norm is None:
        return result
    definitions = definitions_of(element)
    # The mean is written for any head and token, so that all elements share one definition.
    sizes = element.shape(0)[0], number(norm.heads), read.length(element)
    row, head, token = own = tuple(map(ex.index, ("row", "head", "token"), sizes))
    bound = ex.index("k", read.size)
    along = yield read.place(row, head, token, bound)
    mean = ex.divide(definitions.sum(ex.multiply(along, along), bound), read.size)
    root = definitions.algebra.power(ex.add(mean, number(norm.epsilon)), -0.5)
    root = ex.substitute(root, dict(zip(own, place, strict=True)))
    return ex.multiply(ex.multiply(result, root), (yield norm.weight, (channel,)))


def _turned(element: Element, normed: Callable[[Expr], Steps], channel: Expr, at: Expr) -> Steps:
    """Return an element of query or key after rotary embedding at position ``at``."""
    interleaved = bool(element.node.attributes.get("rotary_interleaved", 0))
    return (yield from rotated(element, (7, 8), interleaved, (at,), channel, normed))


def _refuse_cache(element: Element) -> None:
    """Check that expressions may read the cache as one of all positions.

    A cache of a window stores fewer, but those before the window contribute to no result of the operator.

    Raises:
        UnknownError: The cache is quantized, or another operator reads a cache of a window.
    """
    node, graph = element.node, element.elements.graph
    if any(node.attributes.get(name, b"NONE") not in {b"NONE", "NONE"} for name in _QUANTIZED):
        raise UnknownError("a quantized cache has no definition")
    if not stores_window(node):
        return
    before, after = node.present((3, 4)), node.outputs[1:3]
    users = {use.node.index for value in before for use in graph.uses(value)} - {node.index}
    is_fed = all(graph.producer(value).op == "Parameter" for value in before)
    is_returned = all(use.node.op == "Result" for value in after for use in graph.uses(value))
    if int(node.attributes.get("local_window_size", -1)) < 1 or users or not (is_fed and is_returned):
        raise UnknownError("another operator reads a cache of a window")


@closed
def _group_query(element: Element) -> Steps:
    """Return an element of com.microsoft's GroupQueryAttention without a quantized cache.

    Source: docs/ContribOperators.md of ONNX Runtime.

    Raises:
        UnknownError: The cache is quantized, an output has no definition, or the heads are unknown.
    """
    node, attributes = element.node, element.node.attributes
    _refuse_cache(element)
    count, key_count, head_dim, _ = known_heads(node)
    size = number(head_dim)
    query = HeadLayout(node.source(0), size)
    if node.input(1) is None:
        key = HeadLayout(node.source(0), size, number(count))
        value = HeadLayout(node.source(0), size, number(count + key_count))
    else:
        key, value = HeadLayout(node.source(1), size), HeadLayout(node.source(2), size)
    norms = {query: _norm_inside(node, 0, count), key: _norm_inside(node, 1, key_count)}
    length = element.shape(0)[1]
    past = ZERO if node.input(3) is None else element.shape(3)[2]
    total = yield node.source(6), (ZERO,) * (node.source(6).rank or 0)
    if total is not ex.add(past, length):
        raise UnknownError("total_sequence_length is not the sum of the past and the new tokens")

    def start(row: Expr) -> Steps:
        """Return the number of positions of a row before the step."""
        count = yield node.source(5), (row,) if node.source(5).rank == 1 else (row, ZERO)
        new = length if node.input(NEW_TOKENS) is None else (yield node.source(NEW_TOKENS), (row,))
        return ex.subtract(ex.add(count, ONE), new)

    def position(row: Expr, token: Expr) -> Steps:
        if node.input(9) is not None:
            return (yield node.source(9), (row, token))
        return ex.add((yield from start(row)), token)

    def read(operand: HeadLayout, row: Expr, head: Expr, token: Expr, channel: Expr) -> Steps:
        def normed(channel: Expr) -> Steps:
            return (yield from _normed(element, operand, norms.get(operand), (row, head, token), channel))

        if operand is value or not attributes.get("do_rotary"):
            return (yield from normed(channel))
        return (yield from _turned(element, normed, channel, (yield from position(row, token))))

    def present(port: int, row: Expr, head: Expr, place: Expr, channel: Expr) -> Steps:
        before = yield from start(row)
        new = yield from read(key if port == 1 else value, row, head, ex.subtract(place, before), channel)
        if past is ZERO:
            return new
        old = yield node.source(2 + port), (row, head, place, channel)
        return ex.choose(ex.less(place, before), old, new)

    if element.value.port in {1, 2}:
        return (yield from present(element.value.port, *element.index))
    if element.value.port:
        raise UnknownError("the output for products of query and key has no definition")
    keys = ex.add(past, length) if node.outputs[1:] == () else element.elements.shape(node.outputs[1])[2]
    return (yield from by_heads(element, keys, lambda *place: read(query, *place), present))


_QUANTIZED = ("k_quant_type", "v_quant_type")


RULES: dict[str, Rule] = {"GroupQueryAttention": _group_query}
