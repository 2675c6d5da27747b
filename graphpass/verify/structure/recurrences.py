"""Symbolic definitions of loops over tokens, and of LinearAttention, as recurrences of a state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Index, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ZERO, Expr, number
from graphpass.analysis.symbolic.places import index_along
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.bodies import LOOPS
from graphpass.ir.graph import Graph, Node
from graphpass.ir.operators import CASTS, KEEPS_ORDER
from graphpass.ir.values import REALS
from graphpass.verify.structure.model_tensors import BodyTensors, ModelTensors
from graphpass.verify.structure.tensors import closed, definitions_of

if TYPE_CHECKING:
    from graphpass.ir.graph import Value
    from graphpass.verify.structure.definitions import Definitions

#: The state before an iteration, in expressions; no name, because an input may have any.
_STATE = ("carried state",)


def _loop(element: Element) -> Steps:
    tensors = element.elements
    assert isinstance(tensors, ModelTensors)
    yield from ()
    return tensors.bodies.result(element.node, element.value, element.index)


def _iteration(name: str, size: Expr) -> Expr:
    return ex.index(("iteration", name), size)


def _body_of(element: Element) -> BodyTensors:
    assert isinstance(element.elements, BodyTensors)
    return element.elements


def _number(element: Element) -> Steps:
    yield from ()
    count = _body_of(element).iterations(element.node.name)
    if count is None:
        raise UnknownError("the number of iterations of the loop is not known")
    return _iteration(element.node.name, count)


def _sliced(element: Element) -> Steps:
    node, source = element.node, element.node.source()
    axis, own = node.attributes["axis"], list(element.index)
    size, count = element.shape(0)[axis], _body_of(element).iterations(node.name)
    if not node.attributes["in_order"] or count not in {None, size}:
        raise UnknownError("expected slices in ascending order, one for each iteration")
    number_of = _iteration(node.name, size)
    if node.attributes["keeps_axis"]:
        own[axis] = number_of
    else:
        own.insert(axis, number_of)
    return (yield source, tuple(own))


def _carried(element: Element) -> Steps:
    yield from ()
    if element.value != _state_of(element).source(1) or element.value.element_type not in REALS:
        raise UnknownError("expected a loop that carries one real tensor")
    return ex.read(_STATE, element.index, "real")


def _state_of(element: Element) -> Node:
    """Return the Final node of a loop's state.

    The state is the only tensor that the loop carries, besides those that it fills index by index.

    Raises:
        UnknownError: The loop does not carry exactly one such tensor.
    """
    graph, name = element.elements.graph, element.node.name
    finals = [node for node in graph.of_op("Final") if node.name == name and len(node.inputs) == 2]
    states = [node for node in finals if _written(graph, node) is None]
    if len(states) != 1:
        raise UnknownError("expected a loop that carries one tensor")
    return states[0]


def _written(graph: Graph, final: Node) -> Node | None:
    """Return the ScatterUpdate by which iteration ``i`` writes index ``i`` of a carried tensor.

    Returns:
        ``None`` if the tensor is written otherwise, or has other users in the body.

    Raises:
        UnknownError: The tensor is not carried.
    """
    if len(final.inputs) == 1:
        raise UnknownError("the loop returns a tensor that it does not carry")
    write, carried = graph.producer(final.source(0)), final.source(1)
    if write.op != "ScatterUpdate" or write.source(0) != carried or "axis" not in write.attributes:
        return None
    place = graph.producer(graph.look_through(write.source(1), CASTS | KEEPS_ORDER))
    users = [use.node for use in graph.uses(carried)]
    is_own = (place.op, place.name) == ("Iteration", final.name)
    return write if is_own and all(user in (write, final) for user in users) else None


def _ends(element: Element) -> tuple[Value, Value]:
    """Return the state after an iteration, and the state before the first one."""
    final = _state_of(element)
    return final.source(0), element.elements.graph.producer(final.source(1)).source()


def _number_of(expr: Expr, name: str) -> Expr:
    indices = {part for part in ex.walk(expr) if part.op == "index" and part.args[0] == ("iteration", name)}
    if len(indices) != 1:
        raise UnknownError("expected iterations along one axis")
    return indices.pop()


@closed
def _final(element: Element) -> Steps:
    write = _written(element.elements.graph, element.node)
    if write is not None:
        return (yield from _filled(element, write))
    update, first = _ends(element)
    places = _places(element.elements.shape(first))
    left, start = (yield update, places), (yield first, places)
    return _last(element, (left, start), _number_of(left, element.node.name), places)


@closed
def _stacked(element: Element) -> Steps:
    node = element.node
    if not node.attributes["in_order"]:
        raise UnknownError("expected results stacked in ascending order")
    axis, own = node.attributes["axis"], list(element.index)
    place = own[axis]
    if node.attributes["keeps_axis"]:
        own[axis] = ZERO
    else:
        del own[axis]
    return (yield from _of_iteration(element, node.source(), tuple(own), place))


def _filled(element: Element, write: Node) -> Steps:
    """Return an element of a carried tensor of which iteration ``i`` writes index ``i``.

    Raises:
        UnknownError: The loop does not write all of the tensor.
    """
    axis, own = write.attributes["axis"], list(element.index)
    place, count = own[axis], _body_of(element).iterations(element.node.name)
    if count is not element.own_shape[axis]:
        raise UnknownError("the loop does not write all of the tensor")
    if write.source(1).rank:
        own[axis] = ZERO
    else:
        del own[axis]
    return (yield from _of_iteration(element, write.source(2), tuple(own), place))


def _of_iteration(element: Element, value: Value, index: Index, place: Expr) -> Steps:
    """Return an element of a value in the body, at iteration ``place``."""
    update, first = _ends(element)
    result = yield value, index
    places = _places(element.elements.shape(first))
    left, start = (yield update, places), (yield first, places)
    bound = _number_of(left, element.node.name)
    return _followed(element, (result, left, start), bound, places, place)


def _places(sizes: Sequence[Expr]) -> Index:
    return tuple(index_along(f"state {axis}", size) for axis, size in enumerate(sizes))


def _followed(element: Element, bodies: tuple[Expr, Expr, Expr], bound: Expr, places: Index, place: Expr) -> Expr:
    """Return the result of iteration ``place``, as a recurrence over the iterations up to it.

    Args:
        element: The element of the result.
        bodies: The result and the new state of an iteration, and the initial state.
        bound: Index variable of the iteration, in ``bodies``.
        places: Index variables of the state, in ``bodies``.
        place: The iteration.
    """
    result, left, start = bodies
    before = ex.index("before", bound.args[1])
    inner = [before, *(index for index in places if index is not ZERO)]
    left = ex.substitute(left, {bound: before})
    # ``bound`` is passed as a body, because a result may be the same function of the state in all iterations.
    own = result, bound, left, start, _at(places)
    return ex.substitute(definitions_of(element).abstract("recurrence", (), own, inner), {bound: place})


def _last(element: Element, bodies: tuple[Expr, Expr], bound: Expr, places: Index) -> Expr:
    """Return the state after all iterations; ``bodies`` are new and initial state, see `_followed`."""
    inner = [bound, *(index for index in places if index is not ZERO)]
    result = ex.read(_STATE, element.index, "real")
    return definitions_of(element).abstract("recurrence", (), (result, bound.args[1], *bodies, _at(places)), inner)


def _at(places: Index) -> Expr:
    """Return the element of the state that bodies with bound indices ``places`` define.

    Without it, a body and its transpose would be one function, because bound indices are renamed.
    """
    return ex.read(_STATE, places, "real")


class LinearAttentionLayer:
    """A layer of linear attention, with the update rules of LinearAttention.

    Source: docs/ContribOperators.md of ONNX Runtime.

    Attributes:
        definitions: Definitions of both models.
        heads: Number of query heads.
        kv_heads: Number of heads of state and values.
        key_heads: Number of key heads.
        key_dim: Size of a key.
        value_dim: Size of a value.
        decays: Whether the state decays (``gated``, ``gated_delta``).
        corrects: Whether values are corrected by the state (``delta``, ``gated_delta``).
        scale: Factor of the result.
    """

    definitions: Definitions
    heads: int
    kv_heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    decays: bool
    corrects: bool
    scale: float

    def at(self, port: int, row: Expr, token: Expr, head: Expr, channel: Expr) -> Steps:
        """Return an element of an operand.

        Args:
            port: Input of LinearAttention: query 0, key 1, value 2, decay 4, beta 5.
            row: Row of the batch.
            token: Token.
            head: Head of the operand.
            channel: Channel; ignored by operands with one number per head.
        """
        raise NotImplementedError

    def start(self, places: Index) -> Steps:
        """Return an element of the initial state at row, head, key channel and value channel."""
        raise NotImplementedError

    def _served(self, head: Expr, heads: int) -> Expr:
        """Return the head, of ``heads``, that corresponds to a head of the state."""
        return ex.floor_divide(head, number(self.kv_heads // heads)) if heads < self.kv_heads else head

    def _key(self, row: Expr, token: Expr, head: Expr, channel: Expr) -> Steps:
        return (yield from self.at(1, row, token, self._served(head, self.key_heads), channel))

    def _decayed(self, row: Expr, token: Expr, head: Expr, channel: Expr, column: Expr) -> Steps:
        """Return an element of the state before a token, after decay."""
        state = ex.read(_STATE, (row, head, channel, column), "real")
        if not self.decays:
            return state
        return ex.multiply(state, ex.apply("exp", ((yield from self.at(4, row, token, head, channel)),)))

    def _left(self, row: Expr, token: Expr, head: Expr, channel: Expr, column: Expr) -> Steps:
        """Return an element of the state after a token."""
        value = yield from self.at(2, row, token, head, column)
        if self.corrects:
            bound = ex.index("recalled", number(self.key_dim))
            key = yield from self._key(row, token, head, bound)
            decayed = yield from self._decayed(row, token, head, bound, column)
            recalled = self.definitions.sum(ex.multiply(key, decayed), bound)
            beta = yield from self.at(5, row, token, head, ZERO)
            value = ex.multiply(ex.subtract(value, recalled), beta)
        key = yield from self._key(row, token, head, channel)
        return ex.add((yield from self._decayed(row, token, head, channel, column)), ex.multiply(key, value))

    def state(self, element: Element, rows: Expr, tokens: Expr) -> Steps:
        """Return the element of the final state at ``element.index``: row, head, key channel, value channel.

        Args:
            element: The element of the state.
            rows: Batch size.
            tokens: Number of tokens.

        Yields:
            Requests for elements of the layer's inputs.
        """
        bound, places = ex.index("token", tokens), self._state_places(rows)
        left = yield from self._left(places[0], bound, *places[1:])
        start = yield from self.start(places)
        return _last(element, (left, start), bound, places)

    def _state_places(self, rows: Expr) -> Index:
        return _places((rows, *map(number, (self.kv_heads, self.key_dim, self.value_dim))))

    def result(self, element: Element, rows: Expr, tokens: Expr, place: tuple[Expr, Expr, Expr, Expr]) -> Steps:
        """Return an element of the result.

        Args:
            element: The element.
            rows: Batch size.
            tokens: Number of tokens.
            place: Row, token, query head and channel of the value.

        Yields:
            Requests for elements of the layer's inputs.
        """
        bound = ex.index("token", tokens)
        groups = max(self.heads // self.kv_heads, 1)
        row, token, own, column = place
        head = ex.floor_divide(own, number(groups)) if groups > 1 else own
        channel = ex.index("channel", number(self.key_dim))
        asked = own if groups > 1 else self._served(own, self.heads)
        query = yield from self.at(0, row, bound, asked, channel)
        after = yield from self._left(row, bound, head, channel, column)
        result = self.definitions.sum(ex.multiply(query, after), channel)
        places = self._state_places(rows)
        left = yield from self._left(places[0], bound, *places[1:])
        start = yield from self.start(places)
        made = _followed(element, (result, left, start), bound, places, token)
        return ex.multiply(number(self.scale), made)


class _Operator(LinearAttentionLayer):
    """The operator LinearAttention, whose operands have heads and channels in one axis."""

    def __init__(self, element: Element) -> None:
        self._element, attributes = element, native_attributes(element.node)
        rule = str(attributes.get("update_rule", "gated_delta"))
        if attributes.get("state_window", 0) or rule not in {"linear", "gated", "delta", "gated_delta"}:
            raise UnknownError("state_window, and further update rules, have no definition")
        self.definitions = definitions_of(element)
        self.decays, self.corrects = rule in {"gated", "gated_delta"}, rule in {"delta", "gated_delta"}
        self.heads, self.kv_heads = int(attributes["q_num_heads"]), int(attributes["kv_num_heads"])
        self.key_dim = self._width(0) // self.heads
        self.key_heads, self.value_dim = self._width(1) // self.key_dim, self._width(2) // self.kv_heads
        self.scale = float(attributes.get("scale", 0.0)) or self.key_dim**-0.5

    def _width(self, port: int) -> int:
        width = self._element.shape(port)[-1].as_number
        if not isinstance(width, int):
            raise UnknownError("the last size of an operand is not known")
        return width

    def at(self, port: int, row: Expr, token: Expr, head: Expr, channel: Expr) -> Steps:
        width = self._width(port)
        if port in {4, 5} and width in {1, self.kv_heads}:
            place = ZERO if width == 1 else head
        else:
            width = self.value_dim if port == 2 else self.key_dim
            place = ex.add(ex.multiply(head, number(width)), channel)
        return (yield self._element.node.source(port), (row, token, place))

    def start(self, places: Index) -> Steps:
        past = self._element.node.input(3)
        return ZERO if past is None else (yield past, places)


@closed
def _linear_attention(element: Element) -> Steps:
    layer, (rows, tokens) = _Operator(element), element.shape(0)[:2]
    if element.value.port == 1:
        return (yield from layer.state(element, rows, tokens))
    row, token, flat = element.index
    own, column = ex.floor_divide(flat, number(layer.value_dim)), ex.modulo(flat, number(layer.value_dim))
    return (yield from layer.result(element, rows, tokens, (row, token, own, column)))


RULES: dict[str, Rule] = {
    **dict.fromkeys(LOOPS, _loop),
    "Carried": _carried,
    "Final": _final,
    "Iteration": _number,
    "LinearAttention": _linear_attention,
    "Sliced": _sliced,
    "Stacked": _stacked,
}
