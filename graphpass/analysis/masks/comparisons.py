"""Comparisons of positions, of which causal masks and sliding windows are made."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.values import INTEGERS, KEEPS_ORDER, one_number

__all__ = ["Comparison", "bound_of_positions", "compared_positions", "is_comparison"]

#: Comparisons: which operand is the lesser one, and whether they may be equal. ONNX and OpenVINO differ in a word.
_COMPARISONS = {
    "Less": (0, 0),
    "LessEqual": (0, 1),
    "LessOrEqual": (0, 1),
    "Greater": (1, 0),
    "GreaterEqual": (1, 1),
    "GreaterOrEqual": (1, 1),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """``key_position - query_position > bound``, however it is written.

    A bound of 0 tells the keys behind the query from those up to it: the causal condition. One of ``-n`` tells the last
    ``n`` positions, the query's own included, from those before them: a window.

    Attributes:
        keys: Positions of the keys, along the last axis.
        queries: Positions of the queries, along the axis before it.
        bound: Positions.
        is_negated: Whether the condition is that the difference is not greater.
    """

    keys: Value
    queries: Value
    bound: int
    is_negated: bool


def is_comparison(node: Node) -> bool:
    """Whether ``node`` tells the lesser of two numbers."""
    return node.op in _COMPARISONS


def compared_positions(graph: Graph, condition: Value, *, holds: bool = True) -> Comparison | None:
    """What ``condition``, or its negation where not ``holds``, says of positions; ``None`` where it is something else.

    Args:
        graph: Where it is.
        condition: Of whole numbers, which a comparison shifts by constants alone.
        holds: Whether the condition itself is meant.
    """
    node = graph.producer(condition)
    if node.op not in _COMPARISONS:
        return None
    first, slack = _COMPARISONS[node.op]
    lesser, greater = node.inputs[first], node.inputs[1 - first]
    if lesser is None or greater is None or greater.element_type not in INTEGERS:
        return None
    if not holds:
        lesser, greater, slack = greater, lesser, 1 - slack
    # Whole numbers: lesser <= greater is 0 < greater - lesser + 1.
    added, subtracted, constant = _difference(graph, greater, lesser)
    if len(added) != 1 or len(subtracted) != 1:
        return None
    constant += slack
    if _varies(added[0], -1) and _varies(subtracted[0], -2):
        return Comparison(added[0], subtracted[0], -constant, is_negated=False)
    if _varies(subtracted[0], -1) and _varies(added[0], -2):
        return Comparison(subtracted[0], added[0], constant - 1, is_negated=True)
    return None


def bound_of_positions(graph: Graph, comparison: Comparison) -> int:
    """The bound of ``comparison`` between the positions themselves, which may be shifted before they are laid out.

    A range that starts at a constant is one of a step without a past: shifted positions, too.
    """
    return comparison.bound - _shift(graph, comparison.keys) + _shift(graph, comparison.queries)


def _shift(graph: Graph, positions: Value) -> int:
    """The constants that were added to ``positions``."""
    shift = 0
    value: Value | None = positions
    while value is not None:
        node = graph.producer(value)
        if node.op == "Range":
            return shift + int(one_number(graph, node.inputs[0]) or 0)
        if node.op in KEEPS_ORDER:
            value = node.inputs[0]
            continue
        numbers = [one_number(graph, operand) for operand in node.inputs]
        if node.op not in {"Add", "Subtract"} or sum(number is not None for number in numbers) != 1:
            return shift
        port = 1 if numbers[1] is not None else 0
        if node.op == "Subtract" and port == 0:
            return shift
        shift += int(numbers[port] or 0) * (-1 if node.op == "Subtract" else 1)
        value = node.inputs[1 - port]
    return shift


def _difference(graph: Graph, greater: Value, lesser: Value) -> tuple[list[Value], list[Value], int]:
    """``greater - lesser`` as what is added, what is subtracted, and a constant."""
    added: list[Value] = []
    subtracted: list[Value] = []
    constant = 0
    pending = [(greater, 1), (lesser, -1)]
    while pending:
        value, sign = pending.pop()
        node = graph.producer(value)
        operands = [operand for operand in node.inputs if operand is not None]
        if (number := one_number(graph, value)) is not None:
            constant += sign * int(number)
        elif node.op == "Subtract" or (
            node.op == "Add" and any(one_number(graph, operand) is not None for operand in operands)
        ):
            pending += [(operands[0], sign), (operands[1], -sign if node.op == "Subtract" else sign)]
        else:
            (added if sign > 0 else subtracted).append(value)
    return added, subtracted, constant


def _varies(positions: Value, axis: int) -> bool:
    """Whether ``positions`` differ along ``axis`` of the last two alone: keys along the last one, queries before it."""
    if not positions.shape:
        return False
    last = (1, *positions.shape)[-2:]
    return (last[0] if axis == -1 else last[1]) == 1
