"""The pass `expose-window`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy

from graphpass.manager import Changed, Pass, PassResult, Unchanged
from graphpass.model import Dialect
from graphpass.openvino_model import OpenVINOModel
from graphpass.rewrite import integers, named

if TYPE_CHECKING:
    import openvino

__all__ = ["ExposeWindow"]

_AND = frozenset({"LogicalAnd", "BitwiseAnd"})
_OR = frozenset({"LogicalOr", "BitwiseOr"})
_NOT = frozenset({"LogicalNot", "BitwiseNot"})

#: Comparisons: which operand is the lesser one, and whether they may be equal.
_COMPARISONS = {"Less": (0, 0), "LessEqual": (0, 1), "Greater": (1, 0), "GreaterEqual": (1, 1)}

#: Below this, ``exp`` of a score is 0 beside any other score.
_MASKED_BELOW = -1e3


@dataclass(frozen=True)
class ExposeWindow(Pass[OpenVINOModel]):
    """Write sliding-window masks in the form from which OpenVINO reads the window's size.

    Paged attention does not read masks: SDPAToPagedAttention takes the window's size out of the mask's subgraph, and
    where it does not recognise that, openvino.genai's default backend silently attends to everything. The form is the
    one that gpt-oss and Gemma 3 have when optimum exports them (gpt_oss_sliding_window_pattern in OpenVINO's
    state_management_pattern.cpp).
    Layers with the same mask share one.

    Shapes:
        mask broadcastable to ``[batch, heads, length, sequence]``; the window is a constant number of positions.

    Before:
        and(.., key_position > query_position - window, ..) in any order, or its negation with or; the comparison in any
        form -> Broadcast, Slice, Select in any order
    After:
        BitwiseAnd(BitwiseAnd(True, BitwiseAnd(BitwiseAnd(True, key_position > query_position + -window), causal)),
        padding) -> Broadcast -> Select(., 0, lowest) -> Slice
    """

    name: ClassVar[str] = "expose-window"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        rebuilt: dict[_Mask, openvino.Node] = {}
        count = 0
        for node in model.ov_model.get_ordered_ops():
            if node.get_type_name() != "ScaledDotProductAttention" or node.get_input_size() < 4:
                continue
            mask = _read_mask(node.input_value(3))
            if mask is None or _is_exposed(node.input_value(3)):
                continue
            if mask not in rebuilt:
                rebuilt[mask] = _write_mask(mask, f"{node.get_friendly_name()}/window_mask")
            node.input(3).replace_source_output(rebuilt[mask].output(0))
            count += 1
        if not count:
            return Unchanged()
        model.ov_model.validate_nodes_and_infer_types()
        return Changed(model, {"windows exposed": count, "masks": len(rebuilt)})


@dataclass(frozen=True)
class _Place:
    """An output as a hashable value; ``holds`` is ``False`` for the negation of a condition."""

    node: str
    port: int
    output: openvino.Output = field(compare=False)
    holds: bool = True


@dataclass(frozen=True)
class _Mask:
    """What a sliding-window mask is made of.

    Attributes:
        keys: Positions of the keys, compared with the queries'.
        queries: Positions of the queries.
        window: How many positions a query sees, itself included.
        others: The other conditions, outermost first.
        shape: What the condition is broadcast to; ``None`` where it is not.
        bounds: Start, stop, step and axes of the Slice on the way; empty where there is none.
        kept: What is added where the condition holds.
        masked: What is added elsewhere.
        element_type: Of the mask.
    """

    keys: _Place
    queries: _Place
    window: int
    others: tuple[_Place, ...]
    shape: _Place | None
    bounds: tuple[_Place, ...]
    kept: float
    masked: float
    element_type: str


def _place(output: openvino.Output, holds: bool = True) -> _Place:
    return _Place(output.get_node().get_name(), output.get_index(), output, holds)


def _read_mask(mask: openvino.Output) -> _Mask | None:
    """The mask behind ``mask``, where it selects between constants by a condition that holds a window."""
    bounds: tuple[_Place, ...] = ()
    shape: _Place | None = None
    values: list[float] = []
    lowest = -numpy.inf
    output = mask
    while True:
        node = output.get_node()
        kind = node.get_type_name()
        if kind == "Slice" and node.get_input_size() == 5 and not bounds and shape is None:
            bounds = tuple(_place(node.input_value(port)) for port in range(1, 5))
        elif kind == "Broadcast" and shape is None and node.get_input_size() == 2:
            shape = _place(node.input_value(1))
        elif kind == "Maximum" and not values and (limit := _number(node.input_value(1))) is not None:
            lowest = max(lowest, limit)
        elif kind == "Select" and not values:
            numbers = [_number(node.input_value(port)) for port in (1, 2)]
            values = [max(number, lowest) for number in numbers if number is not None]
            if len(values) != 2 or max(values) < 0 or min(values) > _MASKED_BELOW:
                return None
        elif kind != "Convert" or (values and node.get_input_element_type(0) != node.get_output_element_type(0)):
            break
        output = node.input_value(0)
    if not values:
        return None
    terms = _terms(output, values[0] > values[1])
    for number, term in enumerate(terms):
        if (window := _window(term)) is not None:
            keys, queries, size = window
            others = (*terms[:number], *terms[number + 1 :])
            element_type = mask.get_element_type().to_string()
            extremes = (max(values), min(values), element_type)
            return _Mask(_place(keys), _place(queries), size, others, shape, bounds, *extremes)
    return None


def _number(output: openvino.Output) -> float | None:
    """The value of a constant with one element."""
    node = output.get_node()
    if node.get_type_name() != "Constant" or list(node.get_output_shape(0)) not in ([1] * rank for rank in range(5)):
        return None
    return float(node.get_data(dtype=numpy.float64).item())


def _terms(condition: openvino.Output, holds: bool) -> list[_Place]:
    """The conditions that ``condition`` (or its negation) joins by And; constants that are true are dropped."""
    terms: list[_Place] = []
    pending = [(condition, holds)]
    while pending:
        output, positive = pending.pop()
        node = output.get_node()
        kind = node.get_type_name()
        if kind in (_AND if positive else _OR):
            pending += [(node.input_value(0), positive), (node.input_value(1), positive)]
        elif kind in _NOT:
            pending.append((node.input_value(0), not positive))
        elif kind == "Convert" and node.input_value(0).get_element_type() == output.get_element_type():
            pending.append((node.input_value(0), positive))
        elif _number(output) != float(positive):
            terms.append(_place(output, positive))
    return terms


def _window(term: _Place) -> tuple[openvino.Output, openvino.Output, int] | None:
    """Key positions, query positions and window of ``key > query - window``, however it is written."""
    node = term.output.get_node()
    if node.get_type_name() not in _COMPARISONS:
        return None
    first, slack = _COMPARISONS[node.get_type_name()]
    lesser, greater = node.input_value(first), node.input_value(1 - first)
    if not term.holds:
        lesser, greater, slack = greater, lesser, 1 - slack
    if not greater.get_element_type().is_integral():
        return None
    # Whole numbers: lesser <= greater is 0 < greater - lesser + 1. A window has 0 < key - query + window.
    added, subtracted, window = _difference(greater, lesser)
    if len(added) != 1 or len(subtracted) != 1 or window + slack <= 0:
        return None
    keys, queries = added[0], subtracted[0]
    return (keys, queries, window + slack) if _varies(keys, -1) and _varies(queries, -2) else None


def _difference(
    greater: openvino.Output, lesser: openvino.Output
) -> tuple[list[openvino.Output], list[openvino.Output], int]:
    """``greater - lesser`` as what is added, what is subtracted, and a constant."""
    added: list[openvino.Output] = []
    subtracted: list[openvino.Output] = []
    constant = 0
    pending = [(greater, 1), (lesser, -1)]
    while pending:
        output, sign = pending.pop()
        node = output.get_node()
        kind = node.get_type_name()
        if (number := _number(output)) is not None:
            constant += sign * int(number)
        elif kind == "Subtract" or (kind == "Add" and any(_number(part) is not None for part in node.input_values())):
            pending += [(node.input_value(0), sign), (node.input_value(1), -sign if kind == "Subtract" else sign)]
        else:
            (added if sign > 0 else subtracted).append(output)
    return added, subtracted, constant


def _varies(positions: openvino.Output, axis: int) -> bool:
    """Whether ``positions`` differ along ``axis`` of the last two alone: keys along the last one, queries before it."""
    shape = positions.get_partial_shape()
    if shape.rank.is_dynamic or shape.rank.get_length() == 0:
        return False
    last = [1, *list(shape)][-2:]
    other = last[0] if axis == -1 else last[1]
    return bool(other == 1)


def _write_mask(mask: _Mask, name: str) -> openvino.Node:
    import openvino
    from openvino import opset13

    positions = mask.queries.output
    offset = opset13.constant([[[[-mask.window]]]], dtype=positions.get_element_type())
    first = named(opset13.add(positions, named(offset, f"{name}/offset")), f"{name}/first")
    in_window = named(opset13.greater(mask.keys.output, first), f"{name}/in_window")
    others = [
        place.output if place.holds else named(opset13.logical_not(place.output), f"{name}/not_{number}").output(0)
        for number, place in enumerate(mask.others)
    ]
    # The matcher wants four Ands: the window with anything, with the causal condition, with anything, with padding.
    while len(others) > 2:
        others[-2:] = [named(opset13.bitwise_and(*others[-2:]), f"{name}/also_{len(others)}").output(0)]
    yes = named(opset13.constant(True, dtype=openvino.Type.boolean), f"{name}/true")
    others += [yes.output(0)] * (2 - len(others))
    condition = in_window
    for number, (left, right) in enumerate(((yes, None), (None, others[0]), (yes, None), (None, others[1]))):
        condition = named(opset13.bitwise_and(left or condition, right or condition), f"{name}/and_{number}")
    shape = mask.shape.output if mask.shape is not None else integers([1, 1, 1, 1], f"{name}/no_shape")
    expanded = named(opset13.broadcast(condition, shape, broadcast_spec="BIDIRECTIONAL"), f"{name}/expanded")
    branches = [
        named(opset13.constant(value, dtype=getattr(openvino.Type, mask.element_type)), f"{name}/{part}")
        for value, part in ((mask.kept, "kept"), (mask.masked, "masked"))
    ]
    chosen = named(opset13.select(expanded, *branches), f"{name}/chosen")
    bounds = mask.bounds or _everything(name)
    return named(opset13.slice(chosen, *(place.output for place in bounds)), name)


def _everything(name: str) -> tuple[_Place, ...]:
    """Bounds of a Slice that keeps all: the matcher wants one."""
    bounds = (("start", 0), ("stop", 2**63 - 1), ("step", 1), ("axis", 3))
    return tuple(_place(integers([value], f"{name}/{part}").output(0)) for part, value in bounds)


def _is_exposed(mask: openvino.Output) -> bool:
    """Whether the matcher in state_management_pattern.cpp takes ``mask`` as it is."""
    path = (("Slice", 0), ("Select", 0), ("Broadcast", 0), ("BitwiseAnd", 0), ("BitwiseAnd", 1), ("BitwiseAnd", 0))
    node = mask.get_node()
    for kind, port in (*path, ("BitwiseAnd", 1), ("Greater", 1)):
        if node.get_type_name() != kind:
            return False
        node = node.input_value(port).get_node()
    return bool(node.get_type_name() == "Add" and node.input_value(1).get_node().get_type_name() == "Constant")
