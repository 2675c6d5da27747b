"""Symbolic definitions of fused attention and rotary embedding; of GroupQueryAttention in `group_query`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from graphpass.analysis.attention.added_masks import is_infinite
from graphpass.analysis.attention.effective_mask import attention_mask
from graphpass.analysis.attention.operators import operator_heads, operator_sinks
from graphpass.analysis.attention.types import OPERATORS, Attention
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Elements, Request, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import FALSE, ONE, TRUE, ZERO, Expr, number
from graphpass.analysis.symbolic.places import broadcast_index, digits, index_along
from graphpass.analysis.symbolic.rotary import rotary
from graphpass.ir.graph import Node, Value
from graphpass.ir.operators import STATE_OPERATORS
from graphpass.verify.structure.definitions import Definitions
from graphpass.verify.structure.tensors import DefinedTensors, closed, definitions_of


@dataclass(frozen=True, slots=True)
class HeadLayout:
    """Layout of an operand: ``[batch, heads, length, head_dim]`` or merged ``[batch, length, heads * head_dim]``."""

    value: Value
    size: Expr
    first: Expr = ZERO
    is_merged: bool = True

    def length(self, element: Element) -> Expr:
        """Return the number of positions."""
        return element.elements.shape(self.value)[1 if self.is_merged else 2]

    def place(self, row: Expr, head: Expr, place: Expr, channel: Expr) -> tuple[Value, tuple[Expr, ...]]:
        """Return the tensor and the index of an element of one head.

        Args:
            row: Row of the batch.
            head: The head, within the operand.
            place: The position.
            channel: The channel, within the head.
        """
        if not self.is_merged:
            return self.value, (row, head, place, channel)
        merged = ex.add(ex.multiply(ex.add(self.first, head), self.size), channel)
        return self.value, (row, place, merged)


def _score(element: Element, query: Expr, key: Expr, within: Expr) -> Expr:
    """Return the product of query and key, with scale and soft cap from attributes."""
    attributes, size = element.node.attributes, within.args[1].as_number
    assert isinstance(size, int)
    scale = float(attributes.get("scale") or 0) or size**-0.5
    score = ex.multiply(number(scale), definitions_of(element).sum(ex.multiply(query, key), within))
    cap = float(attributes.get("softcap") or 0)
    return ex.multiply(number(cap), ex.apply("tanh", (ex.divide(score, number(cap)),))) if cap else score


def _attended(element: Element, score: Expr, along: Expr, head: Expr, read_value: Steps) -> Steps:
    """Return the sum of values weighted by the softmax of scores over the index ``along``.

    Raises:
        UnknownError: The mask is unknown.
    """
    definitions = definitions_of(element)
    elements = element.elements
    assert isinstance(elements, DefinedTensors)
    mask = attention_mask(elements, Attention(element.node, element.node.outputs[0]))
    if mask.misses:
        raise UnknownError(f"mask: {mask.misses[0]}")
    own = {mask.scope.row: element.index[0], mask.scope.head: head, mask.scope.key: along}
    query = element.index[1] if len(element.index) == 3 else element.index[-2]
    own[mask.scope.query] = query
    visible, bias = (ex.substitute(part, own) for part in (mask.visible, mask.bias))
    visible = definitions.algebra.normal(visible)
    if along.op == "index":
        finite = yield from _finite(element, (element.index[0], head, query, along), visible)
        elements.hide_by_infinity(finite, query, along)
    sink = yield from _sink(element, head)
    share = share_of(definitions, visible, ex.add(score, bias), along, sink)
    return definitions.sum(ex.multiply(share, (yield from read_value)), along)


def _finite(element: Element, score: tuple[Expr, ...], visible: Expr) -> Generator[Request, Expr, Expr]:
    """Return the condition under which no mask excludes a key by -inf; conditions do.

    Args:
        element: An element of attention.
        score: Index of the score, ``(batch, head, query, key)``.
        visible: The condition under which the query attends to the key, which is returned if others are unknown.

    Yields:
        Requests for elements of masks.
    """
    node, ports, tensors = element.node, OPERATORS[element.node.op], element.elements
    assert isinstance(tensors, DefinedTensors)
    finite = TRUE
    # ONNX Runtime returns 0 for a query that attends to no key, but ONNX defines the result of Attention as NaN.
    is_guarded = node.op == "GroupQueryAttention" or (node.op == "Attention" and tensors.is_candidate)
    for port in () if is_guarded else ports.masks:
        value = node.input(port)
        if value is None or port in ports.row_masks:
            continue
        if value.element_type == "boolean":
            return visible
        sizes = tensors.shape(value)
        added = yield value, broadcast_index(score[len(score) - len(sizes) :], sizes)
        infinite = is_infinite(definitions_of(element).algebra.normal(added))
        # Operators combine their own conditions, such as causality, with the mask.
        if infinite is None or (infinite is not FALSE and node.attributes.get("causal") is not False):
            return visible
        finite = ex.conjunction(finite, ex.negate(infinite))
    return finite


def _sink(element: Element, head: Expr) -> Generator[Request, Expr, Expr | None]:
    """Return the score of a head's attention sink; ``None`` without one."""
    if not operator_sinks(element.node):
        return None
    port = OPERATORS[element.node.op].sink
    value = element.node.input(port) if port is not None else None
    if value is None:
        # Smooth softmax adds 1 to the denominator: a sink of score 0.
        return ZERO
    sizes = element.elements.shape(value)
    by_head = 1 if len(sizes) == 4 else 0
    places = (head if axis == by_head and size is not ONE else ZERO for axis, size in enumerate(sizes))
    return (yield value, tuple(places))


def gate_sink(element: Element) -> Generator[Request, Expr, Expr | None]:
    """Return the sink that a gate applies to a Softmax's result; ``None`` without one.

    Yields:
        The request for the sink.
    """
    assert isinstance(element.elements, DefinedTensors)
    gate = element.elements.sink_gates.get(element.node.index)
    if gate is None:
        return None
    sizes = element.elements.shape(gate.sink)
    sink = yield gate.sink, tuple(ZERO if size is ONE else element.index[1] for size in sizes)
    return ex.negative(sink) if gate.is_negative else sink


def share_of(definitions: Definitions, visible: Expr, score: Expr, along: Expr, sink: Expr | None) -> Expr:
    """Return the attention weight of the key ``along``.

    Args:
        definitions: Definitions of both models.
        visible: Effective mask at the key.
        score: Score of the key, with scale, soft cap and bias.
        along: Index variable of the key; 0 if there is one key.
        sink: Logit of the sink, an additional score; ``None`` without one.
    """
    if sink is None:
        return definitions.softmax(visible, score, along)
    keys = along.args[1] if along.op == "index" else ONE
    further = ex.index("key or sink", ex.add(keys, ONE))
    is_key = ex.less(further, keys)
    visible, score = (ex.substitute(part, {along: further}) for part in (visible, score))
    visible = ex.disjunction(ex.negate(is_key), visible)
    share = definitions.softmax(visible, ex.choose(is_key, score, sink), further)
    return ex.substitute(share, {further: along})


def _read(read: tuple[Value, tuple[Expr, ...]]) -> Steps:
    return (yield read)


@closed
def _sdpa(element: Element) -> Steps:
    """Return an element of OpenVINO's ScaledDotProductAttention-13.

    Raises:
        UnknownError: The result does not have 4 axes, or its mask is unknown.
    """
    node, own = element.node, element.index
    if len(own) != 4:
        raise UnknownError("expected 4 axes")
    sizes = [element.shape(port) for port in range(3)]
    keys = sizes[1][-2]
    along = index_along("key", keys)
    channel = ex.index("channel", sizes[0][-1])

    def leading(port: int) -> tuple[Expr, ...]:
        return broadcast_index(own[:-2], sizes[port][:-2])

    query = yield node.source(0), (*leading(0), own[-2], channel)
    key = yield node.source(1), (*leading(1), along, channel)
    scale = ex.divide(ONE, ex.apply("sqrt", (sizes[0][-1],)))
    if node.input(4) is not None:
        scale = yield node.source(4), (ZERO,) * (node.source(4).rank or 0)
    score = ex.multiply(scale, definitions_of(element).sum(ex.multiply(query, key), channel))
    value = node.source(2), (*leading(2), along, own[-1])
    return (yield from _attended(element, score, along, own[1], _read(value)))


def _operand(node: Node, port: int, size: int) -> HeadLayout:
    value = node.source(port)
    if value.rank not in {3, 4}:
        raise UnknownError(f"{value.name} has neither 3 nor 4 axes")
    return HeadLayout(value, number(size), is_merged=value.rank == 3)


@closed
def _attention(element: Element) -> Steps:
    """Return an element of Attention-23, Attention-24 or com.microsoft's MultiHeadAttention.

    Source: onnx.defs; docs/ContribOperators.md of ONNX Runtime.

    Raises:
        UnknownError: An input or output has no definition, or the heads are unknown.
    """
    node, index = element.node, element.index
    if any(node.input(port) is not None for port in _UNREAD.get(node.op, ())):
        raise UnknownError("inputs for a bias of projections or a cache buffer have no definition")
    if node.input(1) is None or node.input(2) is None:
        raise UnknownError("expected keys and values as separate inputs")
    *_, size, value_size = known_heads(node)
    query, key = (_operand(node, port, size) for port in (0, 1))
    operands = {1: key, 2: _operand(node, 2, value_size)}
    pasts = {state.present: node.input(state.past) for state in STATE_OPERATORS[node.op]}

    def present(port: int, row: Expr, head: Expr, place: Expr, channel: Expr) -> Steps:
        past = pasts[port]
        if past is None:
            return (yield operands[port].place(row, head, place, channel))
        before = element.elements.shape(past)[2]
        old = yield past, (row, head, place, channel)
        new = yield operands[port].place(row, head, ex.subtract(place, before), channel)
        return ex.choose(ex.less(place, before), old, new)

    if element.value.port in pasts:
        return (yield from present(element.value.port, *index))
    if element.value.port:
        raise UnknownError("the output for products of query and key has no definition")
    past = pasts[1]
    keys = ex.add(ZERO if past is None else element.elements.shape(past)[2], key.length(element))
    return (yield from by_heads(element, keys, lambda *place: _read(query.place(*place)), present))


def known_heads(node: Node) -> tuple[int, int, int, int]:
    """Return heads, kv heads, head_dim of keys and head_dim of values.

    Raises:
        UnknownError: One of them is unknown.
    """
    heads = operator_heads(node)
    value_size = heads.head_dim if node.op == "GroupQueryAttention" else heads.value_head_dim
    if not (heads.heads and heads.key_heads and heads.head_dim and value_size):
        raise UnknownError("the number or size of heads is not known")
    return heads.heads, heads.key_heads, heads.head_dim, value_size


def by_heads(element: Element, keys: Expr, asked: Callable[..., Steps], present: Callable[..., Steps]) -> Steps:
    """Return an element of the result, whose heads may be merged into one axis.

    Args:
        element: The element.
        keys: Number of keys.
        asked: Returns an element of the query at row, head, token and channel.
        present: Returns an element of keys (port 1) or values (port 2) at port, row, kv head, slot and channel.
    """
    heads, key_heads, size, width = map(number, known_heads(element.node))
    if is_merged := len(element.index) == 3:
        row, token, merged = element.index
        # With quotients in place of these indices, slices of joined projections would not match.
        head, channel = ex.index("head", heads), ex.index("of head", width)
    else:
        row, head, token, channel = element.index
    along = index_along("key", keys)
    within = ex.index("channel", size)
    own = ex.floor_divide(head, ex.floor_divide(heads, key_heads))
    query = yield from asked(row, head, token, within)
    key = yield from present(1, row, own, along, within)
    score = _score(element, query, key, within)
    result = yield from _attended(element, score, along, head, present(2, row, own, along, channel))
    if not is_merged:
        return result
    return ex.substitute(result, dict(zip((head, channel), digits(merged, width), strict=True)))


@closed
def _projected_attention(element: Element) -> Steps:
    """Return an element of com.microsoft's Attention, which computes query, key and value from weights.

    Source: docs/ContribOperators.md of ONNX Runtime.

    Raises:
        UnknownError: The operator shares a buffer of fixed size, or the heads are unknown.
    """
    node, definitions = element.node, definitions_of(element)
    if node.input(6) is not None:
        raise UnknownError("a shared buffer of past and present has no definition")
    heads, _, size, value_size = known_heads(node)
    sizes = (size, size, value_size)
    past, bias = node.input(4), node.input(2)
    within, any_column = ex.index("input", element.shape(0)[-1]), ex.index("column", number(heads * sum(sizes)))

    def projected(port: int, row: Expr, head: Expr, place: Expr, channel: Expr) -> Steps:
        first = number(heads * sum(sizes[:port]))
        column = ex.add(first, ex.add(ex.multiply(head, number(sizes[port])), channel))
        # The product is written for any column, so that heads of query, key and value share one definition.
        factors = (yield node.source(0), (row, place, within)), (yield node.source(1), (within, any_column))
        product = ex.substitute(definitions.sum(ex.multiply(*factors), within), {any_column: column})
        return product if bias is None else ex.add(product, (yield bias, (column,)))

    def present(port: int, row: Expr, head: Expr, place: Expr, channel: Expr) -> Steps:
        if past is None:
            return (yield from projected(port, row, head, place, channel))
        before = element.elements.shape(past)[3]
        old = yield past, (number(port - 1), row, head, place, channel)
        new = yield from projected(port, row, head, ex.subtract(place, before), channel)
        return ex.choose(ex.less(place, before), old, new)

    if element.value.port:
        part, *own = element.index
        key, value = (yield from present(1, *own)), (yield from present(2, *own))
        return ex.choose(ex.less(part, ONE), key, value)
    keys = element.shape(0)[1] if past is None else ex.add(element.elements.shape(past)[3], element.shape(0)[1])
    return (yield from by_heads(element, keys, lambda *place: projected(0, *place), present))


#: Inputs that make the cache a shared buffer, whose size is not the past.
_BUFFERS = {"MultiHeadAttention": (8, 9)}

#: Inputs without a definition: these, and the bias of projections.
_UNREAD = {"MultiHeadAttention": (3, 8, 9)}


# Sizes


def _as_query(elements: Elements, node: Node, axis: int) -> Expr | None:
    """Return the size of the first input along ``axis``; ``None`` for the last axis."""
    sizes = elements.shape(node.source(0))
    return sizes[axis] if axis < len(sizes) - 1 else None


def _state_rows(elements: Elements, node: Node, axis: int) -> Expr | None:
    """Return the batch size of a state, from the first input; ``None`` for other axes."""
    return None if axis else elements.shape(node.source(0))[0]


def _present(elements: Elements, node: Node, axis: int) -> Expr | None:
    """Return the size of present keys or values along the batch or the sequence axis."""
    query, key = (node.input(port) for port in (0, 1))
    past = node.input(STATE_OPERATORS[node.op][0].past)
    is_buffer = any(node.input(port) is not None for port in _BUFFERS.get(node.op, ()))
    if axis == 0:
        return _state_rows(elements, node, axis)
    if axis != 2 or is_buffer or query is None or query.rank != 3:
        return None
    new = elements.shape(query)[1] if key is None else elements.shape(key)[1 if key.rank == 3 else 2]
    return new if past is None else ex.add(elements.shape(past)[2], new)


def _packed_present(elements: Elements, node: Node, axis: int) -> Expr | None:
    """Return the batch or the length of the cache of com.microsoft's Attention."""
    past, sizes = node.input(4), elements.shape(node.source(0))
    if axis == 1:
        return sizes[0]
    if axis != 3:
        return None
    return sizes[1] if past is None else ex.add(elements.shape(past)[3], sizes[1])


def _sdpa_size(elements: Elements, node: Node, axis: int) -> Expr | None:
    query, key, value = (elements.shape(node.source(port)) for port in range(3))
    if len(query) != 4 or axis == len(query) - 1:
        return value[-1] if axis == len(query) - 1 else None
    if axis == 2 or query[axis] is key[axis]:
        return query[axis]
    return key[axis] if query[axis] is ONE else ex.choose(ex.equal(query[axis], ONE), key[axis], query[axis])


#: Functions that return the size of the first result along an axis; below, of further results.
SIZES = {
    "CausalConvWithState": lambda elements, node, axis: elements.shape(node.source(0))[axis],
    **dict.fromkeys(
        ("Attention", "GroupQueryAttention", "LinearAttention", "MultiHeadAttention", "com.microsoft.Attention"),
        _as_query,
    ),
    "ScaledDotProductAttention": _sdpa_size,
}
STATES = {
    **dict.fromkeys(("Attention", "GroupQueryAttention", "MultiHeadAttention"), _present),
    "com.microsoft.Attention": _packed_present,
    **dict.fromkeys(("CausalConvWithState", "LinearAttention"), _state_rows),
}

RULES: dict[str, Rule] = {
    "Attention": _attention,
    "MultiHeadAttention": _attention,
    "RotaryEmbedding": closed(rotary),
    "ScaledDotProductAttention": _sdpa,
    "com.microsoft.Attention": _projected_attention,
}
