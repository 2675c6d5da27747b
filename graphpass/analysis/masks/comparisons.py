"""Read comparisons of positions, which make causal masks and sliding windows."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.ir.constants import fold_scalar
from graphpass.ir.graph import Graph, Value
from graphpass.ir.operators import COMPARISONS, KEEPS_ORDER
from graphpass.ir.values import INTEGERS


@dataclass(frozen=True, slots=True)
class Comparison:
    """``key_position - query_position > bound``, however it is written.

    A bound of 0 separates the keys after the query: the causal condition. One of ``-n`` separates the last ``n``
    positions, the query's own included: a window.

    Attributes:
        keys: Positions of the keys, along the last axis.
        queries: Positions of the queries, along the axis before it.
        is_negated: Whether the difference is not greater.
    """

    keys: Value
    queries: Value
    bound: int
    is_negated: bool


def compared_positions(graph: Graph, condition: Value, *, holds: bool = True) -> Comparison | None:
    """Read ``condition``, or its negation, as a comparison of positions shifted by constants alone."""
    node = graph.producer(condition)
    if node.op not in COMPARISONS:
        return None
    first, slack = COMPARISONS[node.op]
    lesser, greater = node.source(first), node.source(1 - first)
    if greater.element_type not in INTEGERS:
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
    """Return the bound between positions before shifts by constants.

    A range that starts at a constant is one of a step without a past: its positions are shifted, too.
    """
    return comparison.bound - _shift(graph, comparison.keys) + _shift(graph, comparison.queries)


def _shift(graph: Graph, positions: Value) -> int:
    shift = 0
    while True:
        node = graph.producer(graph.look_through(positions, KEEPS_ORDER))
        if node.op == "Range":
            return shift + int(fold_scalar(graph, node.inputs[0]) or 0)
        numbers = [fold_scalar(graph, operand) for operand in node.inputs] if node.op in {"Add", "Subtract"} else []
        if numbers.count(None) != 1 or (node.op == "Subtract" and numbers[0] is not None):
            return shift
        port = numbers.index(None)
        shift += int(numbers[1 - port] or 0) * (-1 if node.op == "Subtract" else 1)
        positions = node.source(port)


def _difference(graph: Graph, greater: Value, lesser: Value) -> tuple[list[Value], list[Value], int]:
    """Split ``greater - lesser`` into added terms, subtracted terms, and a constant."""
    added: list[Value] = []
    subtracted: list[Value] = []
    constant = 0
    pending = [(greater, 1), (lesser, -1)]
    while pending:
        value, sign = pending.pop()
        node = graph.producer(value)
        operands = [operand for operand in node.inputs if operand is not None]
        if (number := fold_scalar(graph, value)) is not None:
            constant += sign * int(number)
        elif node.op == "Subtract" or (
            node.op == "Add" and any(fold_scalar(graph, operand) is not None for operand in operands)
        ):
            pending += [(operands[0], sign), (operands[1], -sign if node.op == "Subtract" else sign)]
        else:
            (added if sign > 0 else subtracted).append(value)
    return added, subtracted, constant


def _varies(positions: Value, axis: int) -> bool:
    """Return whether ``positions`` differ along ``axis`` alone: keys along -1, queries along -2."""
    if not positions.shape:
        return False
    last = (1, *positions.shape)[-2:]
    return (last[0] if axis == -1 else last[1]) == 1
