"""Works out numbers that a graph computes from constants and from sizes that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.values import KEEPS_ORDER

if TYPE_CHECKING:
    import numpy

__all__ = ["worked_out"]

#: More operators than this compute no scale.
_LONGEST = 48

_TWO = {"Add": "add", "Subtract": "subtract", "Multiply": "multiply", "Divide": "divide", "Power": "power"}
_ONE = {"Sqrt": "sqrt", "Reciprocal": "reciprocal", "Negative": "negative", "Exp": "exp", "Log": "log"}


def worked_out(graph: Graph, value: Value) -> float | None:
    """The one number that ``value`` holds whatever the model is given; ``None`` where there is none."""
    known: dict[tuple[int, int], numpy.ndarray | None] = {}
    pending = [value]
    while pending:
        current = pending[-1]
        place = (current.node, current.port)
        node = graph.producer(current)
        operands = _operands(node)
        missing = [operand for operand in operands if (operand.node, operand.port) not in known]
        if place in known or not missing:
            pending.pop()
            known.setdefault(place, _result(graph, node, current, [known[one.node, one.port] for one in operands]))
        elif len(known) + len(pending) > _LONGEST:
            return None
        else:
            pending += missing
    number = known[value.node, value.port]
    return float(number.item()) if number is not None and number.size == 1 else None


def _operands(node: Node) -> list[Value]:
    """What must be known first."""
    if node.op in KEEPS_ORDER or node.op in _ONE:
        return [value for value in node.inputs[:1] if value is not None]
    return [value for value in node.inputs if value is not None] if node.op in _TWO else []


def _result(graph: Graph, node: Node, value: Value, operands: list[numpy.ndarray | None]) -> numpy.ndarray | None:
    import numpy

    if node.op == "Constant":
        return graph.constant(value)
    if node.op in {"Slice", "StridedSlice", "Gather"}:
        return _size(graph, node)
    known = [operand for operand in operands if operand is not None]
    if not known or len(known) < len(operands) or (node.op in _TWO and len(known) != 2):
        return None
    if node.op in KEEPS_ORDER:
        return known[0]
    if node.op == "Divide" and all(operand.dtype.kind in "iu" for operand in known):
        return known[0] // known[1] if (known[1] != 0).all() else None
    floats = [operand.astype(numpy.float64) for operand in known]
    with numpy.errstate(all="ignore"):
        found: numpy.ndarray = getattr(numpy, (_TWO | _ONE)[node.op])(*floats)
    return found if numpy.isfinite(found).all() else None


def _size(graph: Graph, node: Node) -> numpy.ndarray | None:
    """One size that is taken from the shape of a tensor."""
    import numpy

    shape = graph.producer(node.inputs[0]) if node.inputs[0] is not None else None
    start, *stop = (graph.constant(value) for value in node.inputs[1 : 2 if node.op == "Gather" else 3])
    if shape is None or shape.op != "ShapeOf" or _is_cut(shape) or _is_cut(node):
        return None
    sizes = shape.inputs[0].shape if shape.inputs[0] is not None else None
    bounds = [start, *stop]
    if sizes is None or any(bound is None or bound.size != 1 for bound in bounds):
        return None
    first, *end = (int(bound.item()) for bound in bounds if bound is not None)
    taken = sizes[first : min(end[0], len(sizes))] if end else sizes[first:][:1]
    return numpy.asarray(taken[0]) if len(taken) == 1 and isinstance(taken[0], int) else None


def _is_cut(node: Node) -> bool:
    """Whether the bounds of an ONNX Shape or of a StridedSlice are not all in its inputs."""
    if node.op == "ShapeOf":
        return any(attribute.name in {"start", "end"} for attribute in getattr(node.native, "attribute", ()))
    if node.op == "StridedSlice":
        given = node.native.get_attributes()
        return any(any(given[name]) for name in ("begin_mask", "end_mask", "new_axis_mask", "ellipsis_mask"))
    return False
