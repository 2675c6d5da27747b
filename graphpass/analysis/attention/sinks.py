"""Reads an attention sink: a learned column of scores that takes a share of the Softmax and is then dropped.

GPT-OSS writes it as ``softmax(concat(scores, sink))[..., :-1] @ value``.
"""

from __future__ import annotations

from typing import Literal

from graphpass.analysis.attention.softmax import product_behind
from graphpass.analysis.attention.types import NoMatchError
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.slices import NO_END, SLICES
from graphpass.ir.values import keeps_elements, one_number

__all__ = ["COLUMN_DROPS", "Column", "dropped_column", "sink_of", "subtracts_row_maximum"]

#: At which end of the scores a column stands.
Column = Literal["first", "last"]

#: Operators that may drop the sink's column.
COLUMN_DROPS = SLICES | {"VariadicSplit"}


def sink_of(graph: Graph, concat: Node) -> tuple[Value, Value, Column]:
    """The scores, the sink and its place, of which ``concat`` makes scores with one more column.

    Returns:
        The sink is as ``[1, heads, 1, 1]``, where leading dimensions may be missing and ``heads`` may be 1.

    Raises:
        NoMatchError: ``concat`` does something else.
    """
    operands = [operand for operand in concat.inputs if operand is not None]
    scores = [product_behind(graph, operand) for operand in operands]
    if len(operands) != 2 or scores.count(True) != 1:
        raise NoMatchError(f"Concat {concat.name} joins more than its scores and an attention sink")
    rank = concat.outputs[0].rank
    if rank != 4 or concat.attributes.get("axis") not in {-1, 3}:
        raise NoMatchError(f"an attention sink that Concat {concat.name} does not add on the last of four axes")
    column: Column = "last" if scores[0] else "first"
    beside = operands[1 if scores[0] else 0]
    # A number that is not known needs no proof: the product with the value fits only if one column was added.
    if beside.shape is not None and isinstance(beside.shape[-1], int) and beside.shape[-1] != 1:
        raise NoMatchError(f"an attention sink of more than one column, {beside.name}")
    return operands[0 if scores[0] else 1], _before_copies(graph, beside), column


def _before_copies(graph: Graph, value: Value) -> Value:
    """What ``value`` holds copies of, one number a head."""
    name = value.name
    while not _is_one_a_head(value):
        node = graph.producer(value)
        source = node.inputs[0] if node.inputs else None
        # A Broadcast with a third input says which axes are new; without, shapes align at their ends.
        copies = node.op == "Broadcast" and len(node.inputs) == 2
        if source is None or not (copies or keeps_elements(node)):
            raise NoMatchError(f"an attention sink that is not one number for each head, {name}")
        value = source
    return value


def _is_one_a_head(value: Value) -> bool:
    if value.shape is None or len(value.shape) > 4:
        return False
    batch, heads, row, column = [1] * (4 - len(value.shape)) + list(value.shape)
    return (batch, row, column) == (1, 1, 1) and isinstance(heads, int)


def dropped_column(graph: Graph, node: Node) -> tuple[Value, Column]:
    """What ``node`` keeps of probabilities, and which column it drops.

    Raises:
        NoMatchError: It keeps something else.
    """
    read = {"Slice": _slice, "StridedSlice": _strided_slice, "VariadicSplit": _split}[node.op]
    found = read(graph, node)
    if found is None:
        raise NoMatchError(f"an attention sink that {node.op} {node.name} does not just drop")
    return found


def _slice(graph: Graph, node: Node) -> tuple[Value, Column] | None:
    if not _is_last(node, node.attributes.get("axes", ())) or not _has_step_one(graph, node):
        return None
    column = _column(one_number(graph, node.inputs[1]), one_number(graph, node.inputs[2]))
    return None if column is None else (node.outputs[0], column)


def _has_step_one(graph: Graph, node: Node) -> bool:
    """Whether a Slice keeps all between its bounds; the dialects differ in whether step or axes come first."""
    others = [one_number(graph, value) for value in node.inputs[3:] if value is not None]
    return len(others) < 2 or 1 in others


def _strided_slice(graph: Graph, node: Node) -> tuple[Value, Column] | None:
    """A StridedSlice over four axes, as only OpenVINO has it: a mask of 1 says that a bound does not hold."""
    given = node.native.get_attributes()
    if any(any(given[name]) for name in ("new_axis_mask", "shrink_axis_mask", "ellipsis_mask")):
        return None
    begin, end, step = (graph.constant(value) for value in (*node.inputs[1:3], (*node.inputs[3:], None)[0]))
    rank = node.outputs[0].rank
    if begin is None or end is None or rank is None or not rank == begin.size == end.size:
        return None
    if step is not None and (step != 1).any():
        return None
    begins = [0 if free else int(bound) for bound, free in _bounds(begin, given["begin_mask"])]
    ends = [NO_END if free else int(bound) for bound, free in _bounds(end, given["end_mask"])]
    if any(begins[:-1]) or any(bound < NO_END for bound in ends[:-1]):
        return None
    column = _column(begins[-1], ends[-1])
    return None if column is None else (node.outputs[0], column)


def _bounds(bounds: object, mask: list[int]) -> list[tuple[int, int]]:
    import numpy

    numbers = [int(bound) for bound in numpy.asarray(bounds).reshape(-1)]
    return list(zip(numbers, [*mask, *([0] * len(numbers))], strict=False))


def _split(graph: Graph, node: Node) -> tuple[Value, Column] | None:
    """A split into one column and the others, of which only the others are read."""
    if len(node.outputs) != 2 or not _is_last(node, (node.attributes.get("axis"),)):
        return None
    lengths = graph.constant(node.inputs[-1])
    if lengths is None or lengths.size != 2:
        return None
    first, last = (int(length) == 1 for length in lengths.reshape(-1))
    if last and not graph.uses(node.outputs[1]):
        return node.outputs[0], "last"
    if first and not graph.uses(node.outputs[0]):
        return node.outputs[1], "first"
    return None


def _is_last(node: Node, axes: tuple[int | None, ...]) -> bool:
    """Whether ``axes`` is the last axis of what ``node`` makes."""
    return axes in {(-1,), ((node.outputs[0].rank or 0) - 1,)}


def _column(start: float | None, stop: float | None) -> Column | None:
    if start is None or stop is None:
        return None
    if (start, stop) == (0, -1):
        return "last"
    return "first" if start == 1 and stop >= NO_END else None


def subtracts_row_maximum(graph: Graph, node: Node) -> bool:
    """Whether ``node`` subtracts from each row its maximum, which a Softmax behind it does not see."""
    if node.op != "Subtract":
        return False
    source, subtracted = node.inputs
    if source is None or subtracted is None:
        return False
    maximum = graph.producer(subtracted)
    if maximum.op != "ReduceMax" or maximum.inputs[0] != source or subtracted.rank != source.rank:
        return False
    axes = maximum.attributes.get("axes")
    if axes is None and len(maximum.inputs) > 1:
        constant = graph.constant(maximum.inputs[1])
        axes = tuple(int(axis) for axis in constant.reshape(-1)) if constant is not None else None
    return axes is not None and _is_last(node, tuple(axes))
