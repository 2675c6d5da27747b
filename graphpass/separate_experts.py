"""Experts of a mixture that are computed one by one: what each computes, and how much it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from graphpass.rewrite import fold

if TYPE_CHECKING:
    import openvino

__all__ = ["ExpertLayer", "Step", "find_experts", "stored_weight"]

#: What an expert may compute of each of its tokens alone.
_UNARY = frozenset({"Convert", "Gelu", "HSwish", "Mish", "Relu", "Sigmoid", "SoftPlus", "Tanh"})
_BINARY = frozenset({"Add", "Multiply", "Subtract"})

#: Experts of more operators are not looked at.
_LIMIT = 64


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of an expert: what it reads are earlier steps by their places, the tokens (-1), or constants."""

    node: openvino.Node
    reads: tuple[int | openvino.Node, ...]

    @property
    def form(self) -> tuple[object, ...]:
        """What is the same in all experts."""
        reads = tuple(
            read
            if isinstance(read, int)
            else (str(read.get_output_shape(0)), str(stored_weight(read).get_element_type()))
            for read in self.reads
        )
        return self.node.get_type_name(), str(sorted(self.node.get_attributes().items())), reads


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """The experts of one layer.

    Attributes:
        tokens: ``[tokens, hidden]``.
        chosen: The experts of each token, ``[tokens, k]``.
        weights: How much each counts, ``[tokens, k]``.
        bodies: What each expert computes, in their order.
        total: The sum of all of them, ``[tokens, hidden]``.
    """

    tokens: openvino.Output
    chosen: openvino.Output
    weights: openvino.Output
    bodies: tuple[tuple[Step, ...], ...]
    total: openvino.Output


def find_experts(one_hot: openvino.Node) -> ExpertLayer | None:
    """The layer that ``one_hot`` belongs to; ``None`` where it is of another form."""
    chosen = _behind(one_hot.input_value(0), {"Convert"})
    count, on, off = (_part(one_hot.input_value(place)) for place in (1, 2, 3))
    if chosen.get_node().get_type_name() != "TopK" or count is None or (on, off) != (1, 0):
        return None
    turned = _only_reader(one_hot.output(0), "Transpose")
    if turned is None or _values(turned.input_value(1)) != [2, 1, 0] or one_hot.get_attributes()["axis"] not in {-1, 2}:
        return None
    found: dict[int, _Expert] = {}
    for reader in turned.output(0).get_target_inputs():
        number = _number(reader.get_node().input_value(1)) if reader.get_node().get_type_name() == "Gather" else None
        expert = _expert(reader.get_node()) if number is not None else None
        if expert is None or number in found:
            return None
        found[int(number or 0)] = expert
    experts = [found[number] for number in sorted(found)]
    total = _total(experts)
    if sorted(found) != list(range(count)) or total is None:
        return None
    first = experts[0]
    alike = all(
        _same(expert.tokens, first.tokens)
        and _same(expert.weights, first.weights)
        and [step.form for step in expert.body] == [step.form for step in first.body]
        for expert in experts
    )
    if not alike or first.weights.get_partial_shape() != chosen.get_partial_shape():
        return None
    return ExpertLayer(first.tokens, chosen, first.weights, tuple(expert.body for expert in experts), total)


@dataclass(frozen=True, slots=True)
class _Expert:
    tokens: openvino.Output
    weights: openvino.Output
    body: tuple[Step, ...]
    scattered: openvino.Node


def _expert(gather: openvino.Node) -> _Expert | None:
    """What is computed behind the choice of one expert, ``[k, tokens]``."""
    if _number(gather.input_value(2)) != 0:
        return None
    found = _only_reader(gather.output(0), "Convert")
    found = _only_reader((found or gather).output(0), "NonZero")
    turned = found and _only_reader(found.output(0), "Transpose")
    split = turned and _only_reader(turned.output(0), "VariadicSplit")
    if split is None or len(split.outputs()) != 2 or _number(split.input_value(1)) not in {1, -1}:
        return None
    slot, token = (_only_reader(split.output(place), "Squeeze") for place in (0, 1))
    if slot is None or token is None:
        return None
    readers = {reader.get_node().get_type_name(): reader.get_node() for reader in token.output(0).get_target_inputs()}
    taken, where = readers.get("Gather"), readers.get("Unsqueeze")
    spread = where and _only_reader(where.output(0), "Broadcast", others=frozenset({"ShapeOf"}))
    scatter = spread and _only_reader(spread.output(0), "ScatterElementsUpdate")
    if (
        taken is None
        or where is None
        or scatter is None
        or turned is None
        or not _same(taken.input_value(1), token.output(0))
    ):
        return None
    if _number(scatter.input_value(3)) != 0 or not _is_zero(scatter.input_value(0)):
        return None
    if _values(turned.input_value(1)) != [1, 0] or _number(where.input_value(1)) not in {1, -1}:
        return None
    tokens = _taken_from(taken)
    weighted = _behind(scatter.input_value(2), {"Broadcast", "Convert"}).get_node()
    if tokens is None or weighted.get_type_name() != "Multiply":
        return None
    start = _only_reader(taken.output(0), "Reshape") or taken
    if not _is_as_wide(start.output(0), tokens.get_partial_shape()[1].get_length()):
        return None
    for place in (0, 1):
        if not _is_as_wide(weighted.input_value(1 - place), 1):
            continue
        weights = _weights(weighted.input_value(1 - place), slot.output(0), token.output(0))
        body = _body(start.output(0), weighted.input_value(place)) if weights is not None else None
        if weights is not None and body is not None:
            return _Expert(tokens, weights, body, scatter)
    return None


def _is_as_wide(value: openvino.Output, width: int) -> bool:
    """Whether it is ``[.., width]`` of rank 2."""
    shape = value.get_partial_shape()
    return len(shape) == 2 and bool(shape[1] == width)


def _taken_from(gather: openvino.Node) -> openvino.Output | None:
    """The tokens ``[tokens, hidden]`` of which some are taken."""
    source, axis = gather.input_value(0), _number(gather.input_value(2))
    if axis == 1 and source.get_node().get_type_name() == "Unsqueeze":
        source, axis = source.get_node().input_value(0), axis - 1
    shape = source.get_partial_shape()
    return source if axis == 0 and len(shape) == 2 and shape[1].is_static else None


def _weights(value: openvino.Output, slot: openvino.Output, token: openvino.Output) -> openvino.Output | None:
    """The weights ``[tokens, k]`` of which ``value`` is that of each token in its slot: element slot + k * token."""
    taken = _behind(value, {"Reshape", "Unsqueeze", "Convert"}).get_node()
    if taken.get_type_name() != "Gather" or _number(taken.input_value(2)) != 0:
        return None
    weights = _behind(taken.input_value(0), {"Reshape", "Unsqueeze"})
    place = taken.input_value(1).get_node()
    shape = weights.get_partial_shape()
    if place.get_type_name() != "Add" or len(shape) != 2 or shape[1].is_dynamic:
        return None
    for first, second in ((0, 1), (1, 0)):
        row = place.input_value(second).get_node()
        if not _same(place.input_value(first), slot) or row.get_type_name() != "Multiply":
            continue
        for left, right in ((0, 1), (1, 0)):
            if _same(row.input_value(left), token) and _number(row.input_value(right)) == shape[1].get_length():
                return weights
    return None


def _body(start: openvino.Output, end: openvino.Output) -> tuple[Step, ...] | None:
    """The operators from ``start`` to ``end`` in an order that depends on their form alone."""
    places: dict[str, int] = {_key(start): -1}
    steps: list[Step] = []
    pending = [end.get_node()]
    while pending:
        node = pending[-1]
        if _key(node.output(0)) in places:
            pending.pop()
            continue
        sources = [value for value in node.input_values() if not _is_weight(value)]
        if not _is_plain(node, sources) or len(pending) > _LIMIT or len(steps) > _LIMIT:
            return None
        waiting = [value.get_node() for value in sources if _key(value) not in places]
        if waiting:
            pending += reversed(waiting)
            continue
        pending.pop()
        reads = (value.get_node() if _is_weight(value) else places[_key(value)] for value in node.input_values())
        places[_key(node.output(0))] = len(steps)
        steps.append(Step(node, tuple(reads)))
    return tuple(steps)


def _is_plain(node: openvino.Node, sources: list[openvino.Output]) -> bool:
    """Whether ``node`` computes each token by itself, with constants that can be joined."""
    kind = node.get_type_name()
    constants = [value for value in node.input_values() if _is_weight(value)]
    if kind == "MatMul":
        second = constants == node.input_values()[1:] and len(constants[0].get_shape()) == 2 if constants else False
        return second and len(sources) == 1 and not node.get_attributes()["transpose_a"]
    if kind in _BINARY:
        width = node.get_output_partial_shape(0)[1]
        shapes = [list(value.get_shape()) for value in constants]
        return bool(sources) and width.is_static and all(shape == [width.get_length()] for shape in shapes)
    return kind in _UNARY and len(sources) == 1


def _total(experts: list[_Expert]) -> openvino.Output | None:
    """The sum of what all experts give, added one by one to zeros."""
    sums: dict[str, tuple[openvino.Output, openvino.Output]] = {}
    for expert in experts:
        added = _only_reader(expert.scattered.output(0), "Add")
        if added is None:
            return None
        before = [value for value in added.input_values() if not _same(value, expert.scattered.output(0))]
        if len(before) != 1:
            return None
        key = "" if _is_zero(before[0]) else _key(before[0])
        if key in sums:
            return None
        sums[key] = before[0], added.output(0)
    key, last = "", None
    for _ in experts:
        if key not in sums:
            return None
        last = sums[key][1]
        key = _key(last)
    return last


def _described(weight: openvino.Node) -> tuple[str, str, str]:
    types = weight.get_output_element_type(0), stored_weight(weight).get_output_element_type(0)
    return str(weight.get_output_shape(0)), str(types[0]), str(types[1])


def stored_weight(weight: openvino.Node) -> openvino.Node:
    """The constant behind a conversion of its elements."""
    node: openvino.Node = weight.input_value(0).get_node() if weight.get_type_name() == "Convert" else weight
    return node


def _is_weight(value: openvino.Output) -> bool:
    return bool(stored_weight(value.get_node()).get_type_name() == "Constant")


def _behind(value: openvino.Output, kinds: set[str]) -> openvino.Output:
    while value.get_node().get_type_name() in kinds:
        value = value.get_node().input_value(0)
    return value


def _only_reader(value: openvino.Output, kind: str, others: frozenset[str] = frozenset()) -> openvino.Node | None:
    """The one operator of this kind that reads ``value``; ``None`` where any of kinds not in ``others`` does, too."""
    readers = [reader.get_node() for reader in value.get_target_inputs()]
    found = [node for node in readers if node.get_type_name() == kind]
    left = [node for node in readers if node.get_type_name() not in {kind, *others}]
    return found[0] if len(found) == 1 and not left else None


def _is_zero(value: openvino.Output) -> bool:
    filled = _behind(value, {"Broadcast"})
    return bool(filled.get_node().get_type_name() == "Constant" and _number(filled) == 0)


def _values(value: openvino.Output) -> list[int] | None:
    found = fold(value)
    return None if found is None else [int(one) for one in numpy.ravel(found)]


def _number(value: openvino.Output) -> int | None:
    found = fold(value)
    if found is None or found.size != 1 or found.ravel()[0] != int(found.ravel()[0]):
        return None
    return int(found.ravel()[0])


def _part(value: openvino.Output) -> int | None:
    """A number, or one that is split off a vector of as many numbers as there are parts."""
    source = _behind(value, {"Squeeze", "Convert"})
    if source.get_node().get_type_name() not in {"Split", "VariadicSplit"}:
        return _number(value)
    whole = _values(source.get_node().input_value(0))
    parts = source.get_node().outputs()
    return whole[source.get_index()] if whole is not None and len(whole) == len(parts) else None


def _key(value: openvino.Output) -> str:
    return f"{value.get_node().get_name()}.{value.get_index()}"


def _same(left: openvino.Output, right: openvino.Output) -> bool:
    return _key(left) == _key(right)
