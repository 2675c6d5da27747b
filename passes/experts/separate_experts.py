"""Experts of a mixture that are computed one by one: what each computes, and how much it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.ir.operators import KEEPS_ORDER
from graphpass.passes.experts.expert_layers import (
    EXPERT_LIMIT,
    SPREAD,
    ExpertLayer,
    Step,
    behind,
    is_plain,
    is_weight,
    is_zero,
    key_of,
    number_of,
    part_of,
    readers,
    same,
    values_of,
)

if TYPE_CHECKING:
    import openvino

__all__ = ["find_experts"]


def find_experts(one_hot: openvino.Node) -> ExpertLayer | None:
    """The layer that ``one_hot`` belongs to; ``None`` where it is of another form."""
    chosen = behind(one_hot.input_value(0), {"Convert"})
    count, on, off = (part_of(one_hot.input_value(place)) for place in (1, 2, 3))
    if chosen.get_node().get_type_name() != "TopK" or count is None or (on, off) != (1, 0):
        return None
    turned = _only_reader(one_hot.output(0), "Transpose")
    order = values_of(turned.input_value(1)) if turned is not None else None
    if turned is None or order not in ([2, 1, 0], [2, 0, 1]) or one_hot.get_attributes()["axis"] not in {-1, 2}:
        return None
    found: dict[int, _Expert] = {}
    for reader in turned.output(0).get_target_inputs():
        number = number_of(reader.get_node().input_value(1)) if reader.get_node().get_type_name() == "Gather" else None
        expert = _expert(reader.get_node(), order[1:].index(0)) if number is not None else None
        if expert is None or number in found:
            return None
        found[int(number or 0)] = expert
    experts = [found[number] for number in sorted(found)]
    total = _total(experts)
    if sorted(found) != list(range(count)) or total is None:
        return None
    first = experts[0]
    alike = all(
        same(expert.tokens, first.tokens)
        and same(expert.weights, first.weights)
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


def _expert(gather: openvino.Node, token_axis: int) -> _Expert | None:
    """What is computed behind the choice of one expert, of which one axis counts tokens and the other choices."""
    if number_of(gather.input_value(2)) != 0:
        return None
    found = _only_reader(gather.output(0), "Convert")
    found = _only_reader((found or gather).output(0), "NonZero")
    places = _places(found) if found is not None else None
    if places is None:
        return None
    token, slot = places[token_axis], places[1 - token_axis]
    takers = [node for node in readers(token, "Gather") if same(behind(node.input_value(1), KEEPS_ORDER), token)]
    adders = [
        node for node in readers(token, "ScatterElementsUpdate") if same(behind(node.input_value(1), SPREAD), token)
    ]
    if len(takers) != 1 or len(adders) != 1 or number_of(adders[0].input_value(3)) != 0:
        return None
    (taken,), (scatter,) = takers, adders
    if scatter.get_attributes()["reduction"] != "sum" and not is_zero(scatter.input_value(0)):
        return None
    tokens = _taken_from(taken)
    weighted = behind(scatter.input_value(2), {"Broadcast", "Convert"}).get_node()
    if tokens is None or weighted.get_type_name() != "Multiply":
        return None
    start = _only_reader(taken.output(0), "Reshape") or taken
    if not _is_as_wide(start.output(0), tokens.get_partial_shape()[1].get_length()):
        return None
    for place in (0, 1):
        if not _is_as_wide(weighted.input_value(1 - place), 1):
            continue
        weights = _weights(weighted.input_value(1 - place), slot, token)
        body = _body(start.output(0), weighted.input_value(place)) if weights is not None else None
        if weights is not None and body is not None:
            return _Expert(tokens, weights, body, scatter)
    return None


def _places(non_zero: openvino.Node) -> list[openvino.Output] | None:
    """Where on each of the two axes what ``non_zero`` found stands."""
    turned = _only_reader(non_zero.output(0), "Transpose")
    if turned is not None and values_of(turned.input_value(1)) != [1, 0]:
        return None
    axes = {0, -2} if turned is None else {1, -1}
    found = [
        split
        for kind in ("Split", "VariadicSplit")
        if (split := _only_reader((turned or non_zero).output(0), kind)) is not None
    ]
    if len(found) != 1 or len(found[0].outputs()) != 2 or number_of(found[0].input_value(1)) not in axes:
        return None
    outputs: list[openvino.Output] = found[0].outputs()
    return outputs


def _is_as_wide(value: openvino.Output, width: int) -> bool:
    """Whether it is ``[.., width]`` of rank 2."""
    shape = value.get_partial_shape()
    return len(shape) == 2 and bool(shape[1] == width)


def _taken_from(gather: openvino.Node) -> openvino.Output | None:
    """The tokens ``[tokens, hidden]`` of which some are taken."""
    source, axis = gather.input_value(0), number_of(gather.input_value(2))
    if axis == 1 and source.get_node().get_type_name() == "Unsqueeze":
        source, axis = source.get_node().input_value(0), axis - 1
    shape = source.get_partial_shape()
    return source if axis == 0 and len(shape) == 2 and shape[1].is_static else None


def _weights(value: openvino.Output, slot: openvino.Output, token: openvino.Output) -> openvino.Output | None:
    """The weights ``[tokens, k]`` of which ``value`` is that of each token in its slot: element slot + k * token."""
    taken = behind(value, {"Reshape", "Unsqueeze", "Convert"}).get_node()
    if taken.get_type_name() != "Gather" or number_of(taken.input_value(2)) != 0:
        return None
    weights = behind(taken.input_value(0), {"Reshape", "Unsqueeze"})
    place = behind(taken.input_value(1), KEEPS_ORDER).get_node()
    shape = weights.get_partial_shape()
    if place.get_type_name() != "Add" or len(shape) != 2 or shape[1].is_dynamic:
        return None
    for first, second in ((0, 1), (1, 0)):
        row = place.input_value(second).get_node()
        if not same(behind(place.input_value(first), KEEPS_ORDER), slot) or row.get_type_name() != "Multiply":
            continue
        for left, right in ((0, 1), (1, 0)):
            is_token = same(behind(row.input_value(left), KEEPS_ORDER), token)
            if is_token and _size(row.input_value(right)) == shape[1].get_length():
                return weights
    return None


def _size(value: openvino.Output) -> int | None:
    """A number, or the fixed size of an axis."""
    source = behind(value, KEEPS_ORDER)
    node = source.get_node()
    if node.get_type_name() not in {"Gather", "Split"} or node.input_value(0).get_node().get_type_name() != "ShapeOf":
        return number_of(value)
    shape = node.input_value(0).get_node().input_value(0).get_partial_shape()
    axis = number_of(node.input_value(1)) if node.get_type_name() == "Gather" else source.get_index()
    is_axis = axis is not None and (node.get_type_name() == "Gather" or len(node.outputs()) == len(shape))
    return shape[axis].get_length() if is_axis and shape[axis].is_static else None


def _body(start: openvino.Output, end: openvino.Output) -> tuple[Step, ...] | None:
    """The operators from ``start`` to ``end`` in an order that depends on their form alone."""
    places: dict[str, int] = {key_of(start): -1}
    steps: list[Step] = []
    pending = [end.get_node()]
    while pending:
        node = pending[-1]
        if key_of(node.output(0)) in places:
            pending.pop()
            continue
        sources = [value for value in node.input_values() if not is_weight(value)]
        if not is_plain(node, sources) or len(pending) > EXPERT_LIMIT or len(steps) > EXPERT_LIMIT:
            return None
        waiting = [value.get_node() for value in sources if key_of(value) not in places]
        if waiting:
            pending += reversed(waiting)
            continue
        pending.pop()
        reads = (value.get_node() if is_weight(value) else places[key_of(value)] for value in node.input_values())
        places[key_of(node.output(0))] = len(steps)
        steps.append(Step(node, tuple(reads)))
    return tuple(steps)


def _total(experts: list[_Expert]) -> openvino.Output | None:
    """The sum of what all experts give, added one by one to zeros."""
    sums: dict[str, tuple[openvino.Output, openvino.Output]] = {}
    for expert in experts:
        before, after = [expert.scattered.input_value(0)], expert.scattered
        if after.get_attributes()["reduction"] != "sum":
            added = _only_reader(after.output(0), "Add")
            if added is None:
                return None
            before = [value for value in added.input_values() if not same(value, after.output(0))]
            after = added
        if len(before) != 1:
            return None
        key = "" if is_zero(before[0]) else key_of(before[0])
        if key in sums:
            return None
        sums[key] = before[0], after.output(0)
    key, last = "", None
    for _ in experts:
        if key not in sums:
            return None
        last = sums[key][1]
        key = key_of(last)
    return last


def _only_reader(value: openvino.Output, kind: str) -> openvino.Node | None:
    """The one operator that reads ``value``, where it is of this kind."""
    found = [reader.get_node() for reader in value.get_target_inputs()]
    return found[0] if len(found) == 1 and found[0].get_type_name() == kind else None
