"""Reads sliding-window masks, and writes them in the form from which OpenVINO reads the window's size."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from graphpass.analysis.masks.comparisons import compared_positions
from graphpass.analysis.masks.facts import added_terms, mask_facts
from graphpass.dialects.openvino.rewrite import integers, named, output_of, scalar
from graphpass.ir.ports import MASKED_BELOW
from graphpass.ir.values import REALS, one_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import openvino

    from graphpass.ir.graph import Graph, Node, Value

__all__ = ["WindowMask", "read_mask", "write_mask"]

_AND = frozenset({"LogicalAnd", "BitwiseAnd"})
_OR = frozenset({"LogicalOr", "BitwiseOr"})
_NOT = frozenset({"LogicalNot", "BitwiseNot"})

_ARITHMETIC = frozenset({"Add", "Maximum", "Minimum", "Multiply", "Subtract"})


@dataclass(frozen=True)
class _Condition:
    """A condition, or its negation where it not ``holds``; where it is a mask of numbers, that it masks nothing."""

    value: Value
    holds: bool


@dataclass(frozen=True)
class WindowMask:
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

    keys: Value
    queries: Value
    window: int
    others: tuple[_Condition, ...]
    shape: Value | None
    bounds: tuple[Value, ...]
    kept: float
    masked: float
    element_type: str


def read_mask(graph: Graph, mask: Value | None) -> WindowMask | None:
    """The mask behind ``mask``, where it selects between constants by a condition that holds a window.

    It may be a sum: what else is added has to mask and nothing more.
    """
    terms = added_terms(graph, mask)[::-1] if mask is not None else []
    for number, term in enumerate(terms):
        found = _read_term(graph, term)
        others = [*terms[:number], *terms[number + 1 :]]
        if (
            found is not None
            and (not others or not found.bounds)
            and all(_only_masks(graph, other) for other in others)
        ):
            conditions = tuple(_Condition(_padding(graph, found, other) or other, holds=True) for other in others)
            return dataclasses.replace(found, others=(*found.others, *conditions))
    return None


def _padding(graph: Graph, window: WindowMask, mask: Value) -> Value | None:
    """The input attention_mask, where ``mask`` hides nothing but what that and the causal condition hide.

    NPUW takes a causal condition beside that of the window for a contradiction (detect_causal_mask.cpp).
    """
    if not mask_facts(graph, mask).parts <= {"causal", "input"}:
        return None
    behind = graph.backward([mask], lambda node: () if node.op == "ShapeOf" else node.inputs)
    inputs = [node for node in behind if node.op in {"Parameter", "ReadValue"}]
    compared = [compared_positions(graph, other.value, holds=other.holds) for other in window.others]
    is_causal = any(one is not None and one.bound == 0 and one.is_negated for one in compared)
    if not is_causal or [node.name for node in inputs] != ["attention_mask"]:
        return None
    padding = inputs[0].outputs[0]
    return padding if padding.rank == 2 and padding.element_type not in REALS else None


def _only_masks(graph: Graph, mask: Value) -> bool:
    """Whether each number of ``mask`` is 0 or counts as masked."""
    facts = mask_facts(graph, mask)
    if facts.unknown is not None or facts.parts & {"alibi", "bias"}:
        return False
    for node in graph.backward([mask], _numbers_of):
        held = node.outputs[0] if node.op in {"Constant", "Parameter"} else None
        if held is not None and held.element_type in REALS:
            number = one_number(graph, held)
            if number is None or (number not in {0, 1} and number > MASKED_BELOW):
                return False
    return True


def _numbers_of(node: Node) -> Iterable[Value | None]:
    """Whence the numbers of a mask come that ``node`` makes; none where it makes them of a condition."""
    if node.op == "Select":
        return node.inputs[1:]
    if node.op == "ScatterNDUpdate":
        return (node.inputs[0], node.inputs[2])
    return node.inputs if node.op in _ARITHMETIC else node.inputs[:1]


def _read_term(graph: Graph, mask: Value) -> WindowMask | None:
    bounds: tuple[Value, ...] = ()
    shape: Value | None = None
    values: list[float] = []
    lowest = -numpy.inf
    value = mask
    while True:
        node = graph.producer(value)
        given = [operand for operand in node.inputs if operand is not None]
        if node.op == "Slice" and len(given) == 5 and not bounds and shape is None:
            bounds = tuple(given[1:])
        elif node.op == "Broadcast" and shape is None and len(given) == 2:
            shape = given[1]
        elif node.op == "Maximum" and not values and (limit := one_number(graph, given[1])) is not None:
            lowest = max(lowest, limit)
        elif node.op == "Select" and not values:
            numbers = [one_number(graph, operand) for operand in given[1:]]
            values = [max(number, lowest) for number in numbers if number is not None]
            if len(values) != 2 or max(values) < 0 or min(values) > MASKED_BELOW:
                return None
        elif node.op != "Convert" or (values and given[0].element_type != value.element_type):
            break
        value = given[0]
    if not values:
        return None
    terms = _terms(graph, value, values[0] > values[1])
    for number, term in enumerate(terms):
        found = compared_positions(graph, term.value, holds=term.holds)
        if found is not None and not found.is_negated and found.bound < 0:
            others = (*terms[:number], *terms[number + 1 :])
            extremes = (max(values), min(values), mask.element_type)
            return WindowMask(found.keys, found.queries, -found.bound, others, shape, bounds, *extremes)
    return None


def _terms(graph: Graph, condition: Value, holds: bool) -> list[_Condition]:
    """The conditions that ``condition`` (or its negation) joins by And; constants that are true are dropped."""
    terms: list[_Condition] = []
    pending = [_Condition(condition, holds)]
    while pending:
        term = pending.pop()
        node = graph.producer(term.value)
        given = [operand for operand in node.inputs if operand is not None]
        if node.op in (_AND if term.holds else _OR):
            pending += [_Condition(operand, term.holds) for operand in given]
        elif node.op in _NOT:
            pending.append(_Condition(given[0], not term.holds))
        elif node.op == "Convert" and given[0].element_type == term.value.element_type:
            pending.append(_Condition(given[0], term.holds))
        elif one_number(graph, term.value) != float(term.holds):
            terms.append(term)
    return terms


def _causal_first(graph: Graph, others: Sequence[_Condition]) -> list[_Condition]:
    """``others`` with those that compare positions in front: NPUW wants them right behind the window.

    Its phi3_sliding_mask.cpp (openvino 2026.4.1) mends ``And(And(., Greater), LessEqual)`` for prompts that it pads.
    """
    return sorted(others, key=lambda other: compared_positions(graph, other.value, holds=other.holds) is None)


def write_mask(
    mask: WindowMask, name: str, graph: Graph, compared: tuple[openvino.Output, openvino.Output] | None = None
) -> openvino.Node:
    """Write ``mask`` in the form from which paged attention reads the window.

    Args:
        mask: What to write.
        name: How names of the new nodes begin.
        graph: Where the parts of ``mask`` are.
        compared: Positions of keys and queries to compare instead of those that the mask compares.

    Returns:
        What attention is to read.
    """
    import openvino
    from openvino import opset13

    keys, positions = compared or (output_of(graph, mask.keys), output_of(graph, mask.queries))
    offset = opset13.constant([[[[-mask.window]]]], dtype=positions.get_element_type())
    first = named(opset13.add(positions, named(offset, f"{name}/offset")), f"{name}/first")
    in_window = named(opset13.greater(keys, first), f"{name}/in_window")
    others = [
        _written(graph, other, f"{name}/other_{number}")
        for number, other in enumerate(_causal_first(graph, mask.others))
    ]
    # The matcher wants four Ands: the window with anything, with the causal condition, with anything, with padding.
    while len(others) > 2:
        others[-2:] = [named(opset13.bitwise_and(*others[-2:]), f"{name}/also_{len(others)}").output(0)]
    yes = named(opset13.constant(True, dtype=openvino.Type.boolean), f"{name}/true")
    others += [yes.output(0)] * (2 - len(others))
    condition = in_window
    for number, (left, right) in enumerate(((yes, None), (None, others[0]), (yes, None), (None, others[1]))):
        condition = named(opset13.bitwise_and(left or condition, right or condition), f"{name}/and_{number}")
    shape = output_of(graph, mask.shape) if mask.shape is not None else integers([1, 1, 1, 1], f"{name}/no_shape")
    expanded = named(opset13.broadcast(condition, shape, broadcast_spec="BIDIRECTIONAL"), f"{name}/expanded")
    branches = [
        named(opset13.constant(value, dtype=getattr(openvino.Type, mask.element_type)), f"{name}/{part}")
        for value, part in ((mask.kept, "kept"), (mask.masked, "masked"))
    ]
    chosen = named(opset13.select(expanded, *branches), f"{name}/chosen")
    bounds = [output_of(graph, bound) for bound in mask.bounds] or _everything(name)
    return named(opset13.slice(chosen, *bounds), name)


def _written(graph: Graph, condition: _Condition, name: str) -> openvino.Output:
    from openvino import opset13

    output = output_of(graph, condition.value)
    if graph.producer(condition.value).op == "Parameter" and condition.value.rank == 2:
        kept = opset13.convert(output, "boolean")
        return named(opset13.unsqueeze(kept, integers([1, 2], f"{name}/axes")), name).output(0)
    if condition.value.element_type != "boolean":
        limit = scalar(MASKED_BELOW, output.get_element_type(), f"{name}/masked_below")
        return named(opset13.greater(output, limit), name).output(0)
    return output if condition.holds else named(opset13.logical_not(output), name).output(0)


def _everything(name: str) -> list[openvino.Output]:
    """Bounds of a Slice that keeps all: the matcher wants one."""
    bounds = (("start", 0), ("stop", 2**63 - 1), ("step", 1), ("axis", 3))
    return [integers([value], f"{name}/{part}").output(0) for part, value in bounds]
