"""Fold what follows from constants and known dimensions, in numpy and in each value's own type.

`Graph.constant` reads a literal; `fold` computes; `fold_scalar` gives the one number of a value. Work is bounded: each
value of a graph is folded once, and nothing of more than `LIMIT` elements is read or computed. A Broadcast is a view.
Elements of shapes that are not known are moved and dropped, but never computed with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any, TypeAlias

import numpy

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import COPIES, RESHAPES, SLICES, SPLITS
from graphpass.ir.slices import Cut, cuts
from graphpass.ir.values import fixed_size, is_value_preserving

__all__ = [
    "LIMIT",
    "copies_elements",
    "fold",
    "fold_cuts",
    "fold_elements",
    "fold_scalar",
    "reduced_axes",
    "starts_at_first",
]

#: Elements of the largest tensor that is read or computed: scales, shapes and indices are small.
LIMIT = 4096

#: Element types that are computed with; numpy does not know bf16, whose numbers are rounded f32.
_DTYPES = {
    "boolean": "bool",
    "bf16": "float32",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    **{f"{sign}{bits}": f"{'u' * (sign == 'u')}int{bits}" for sign in "iu" for bits in (8, 16, 32, 64)},
}

_Array: TypeAlias = "numpy.ndarray[Any, Any]"


@dataclass(frozen=True, slots=True)
class _Fold:
    """A tensor, and which of its elements are known."""

    values: _Array
    known: _Array


def fold(graph: Graph, value: Value | None) -> _Array | None:
    """Return what ``value`` holds, if that follows from constants and known dimensions alone.

    Args:
        graph: The graph; remembers what was folded.
        value: Any value.

    Returns:
        The tensor, read-only, perhaps a view of few elements; bf16 as f32. ``None`` if it depends on anything else.

    Raises:
        FileNotFoundError: A constant lies in a file that is not there.
    """
    found = _folded(graph, value) if value is not None else None
    return found.values if found is not None and found.known.all() else None


def fold_scalar(graph: Graph, value: Value | None) -> float | None:
    """Return the one number that ``value`` holds; see `fold`."""
    found = fold(graph, value)
    return float(found.item()) if found is not None and found.size == 1 else None


def fold_elements(graph: Graph, value: Value | None) -> _Array | None:
    """Return the elements of which ``value`` holds copies, in whatever layout; see `fold`."""
    return None if value is None else fold(graph, graph.look_through(value, copies_elements))


def copies_elements(node: Node) -> bool:
    """Whether ``node`` copies or lays out its elements, perhaps to a shape that is not known."""
    return is_value_preserving(node) or node.op in COPIES | RESHAPES


def fold_cuts(graph: Graph, node: Node) -> tuple[Cut, ...]:
    """Return what a Slice or StridedSlice keeps, axis by axis; nothing if that cannot be told."""
    return cuts(node, lambda value: fold(graph, value))


def starts_at_first(graph: Graph, node: Node) -> bool:
    """Whether ``node`` slices, and keeps the first places along each axis that it cuts."""
    found = fold_cuts(graph, node)
    return bool(found) and all(cut.starts_at_first for cut in found)


def reduced_axes(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """Return the axes that a reduction or norm works along; ``None`` if they are computed."""
    given = node.attributes.get("axes")
    folded = fold(graph, node.input(1)) if given is None else None
    return given if folded is None else tuple(_integers(folded))


def _folded(graph: Graph, value: Value) -> _Fold | None:
    folds = graph.folds
    pending = [value]
    while pending:
        current = pending[-1]
        node = graph.producer(current)
        sources = _sources(graph, node)
        if current in folds:
            pending.pop()
        elif sources is None or any(source in folds and folds[source] is None for source in sources):
            folds[current] = None
        elif missing := [source for source in sources if source not in folds]:
            pending.append(missing[0])
        else:
            folds[current] = _evaluate(graph, node, current)
    found: _Fold | None = folds[value]
    return found


def _sources(graph: Graph, node: Node) -> list[Value] | None:
    """Return what to fold first, constants last: often another input settles that none need be read."""
    if node.op in {"Constant", "ShapeOf"}:
        return []
    if node.op not in _RULES or not node.inputs or node.inputs[0] is None:
        return None
    given = [value for value in node.inputs if value is not None]
    return sorted(given, key=lambda value: graph.producer(value).op == "Constant")


def _evaluate(graph: Graph, node: Node, value: Value) -> _Fold | None:
    dtype = _DTYPES.get(value.element_type)
    if dtype is None:
        return None
    if node.op == "ShapeOf":
        return _shape(node, dtype)
    if node.op == "Constant":
        held = graph.constant(value, LIMIT)
        return None if held is None else _known(held.astype(dtype))
    inputs: list[_Fold] = [graph.folds[source] for source in node.inputs if source is not None]
    moved = 0 if node.op not in _MOVES else len(inputs) if node.op == "Concat" else 1
    values, masks = [one.values for one in inputs], [one.known for one in inputs]
    if not all(mask.all() for mask in masks[moved:]) or not _is_small(node, values):
        return None
    try:
        with numpy.errstate(all="ignore"):
            found = _RULES[node.op](node, value.port, values)
            known = _RULES[node.op](node, value.port, masks[:moved] + values[moved:]) if moved else None
    except (IndexError, KeyError, TypeError, ValueError):  # the graph is not well formed, or says too little
        return None
    if found is None:
        return None
    typed = _typed(found, value.element_type)
    return _known(typed) if known is None else _Fold(typed, known.astype(bool, copy=False))


def _is_small(node: Node, values: list[_Array]) -> bool:
    """Whether what ``node`` computes of ``values`` has few elements; a Broadcast computes nothing."""
    if node.op == "Broadcast":
        return True
    if node.op in _MOVES:
        return sum(value.size for value in values) <= LIMIT
    return prod(numpy.broadcast_shapes(*(value.shape for value in values))) <= LIMIT


def _known(values: _Array) -> _Fold:
    return _Fold(values, numpy.broadcast_to(numpy.True_, values.shape))


def _typed(values: _Array, element_type: str) -> _Array:
    """Return ``values`` as numbers of ``element_type``."""
    typed = values.astype(_DTYPES[element_type], copy=False)
    if element_type != "bf16" or typed.size > LIMIT:
        return typed
    bits = typed.view(numpy.uint32).astype(numpy.uint64)
    # To the nearest number that the upper 16 bits can hold, of two to the even one.
    rounded = (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(numpy.uint32).view(numpy.float32)
    return numpy.where(numpy.isfinite(typed), rounded, typed)


def _shape(node: Node, dtype: str) -> _Fold | None:
    """Return the dimensions that a ShapeOf reads; ONNX's Shape reads those from ``start`` to ``end``."""
    shape = node.source().shape
    if shape is None:
        return None
    sizes = shape[slice(node.attributes.get("start"), node.attributes.get("end"))]
    known = [isinstance(size, int) for size in sizes]
    return _Fold(numpy.array([size if isinstance(size, int) else 0 for size in sizes], dtype), numpy.array(known, bool))


def _axes(node: Node, inputs: list[_Array]) -> tuple[int, ...]:
    """Return the axes of a Squeeze or Unsqueeze."""
    given = node.attributes.get("axes")
    return tuple(given) if given is not None else tuple(_integers(inputs[1])) if len(inputs) > 1 else ()


def _integers(array: _Array) -> list[int]:
    return [int(number) for number in array.reshape(-1)]


def _reshape(_node: Node, _port: int, inputs: list[_Array]) -> _Array:
    source, target = inputs[0], enumerate(_integers(inputs[1]))
    # A size of 0 copies one, unless the tensor is empty.
    return source.reshape([source.shape[axis] if size == 0 and source.size else size for axis, size in target])


def _broadcast(_node: Node, _port: int, inputs: list[_Array]) -> _Array | None:
    if len(inputs) != 2:  # a third input says which axes are new
        return None
    return numpy.broadcast_to(inputs[0], numpy.broadcast_shapes(inputs[0].shape, tuple(_integers(inputs[1]))))


def _gather(node: Node, _port: int, inputs: list[_Array]) -> _Array | None:
    found = numpy.take(inputs[0], inputs[1], node.attributes["axis"])
    # With batch dimensions, data and indices begin with the same axes, which the result has once.
    return found if node.outputs[0].rank in {found.ndim, None} else None


def _slice(node: Node, _port: int, inputs: list[_Array]) -> _Array | None:
    bounds = dict(zip((value for value in node.inputs if value is not None), inputs, strict=True))
    kept, gone = [slice(None)] * inputs[0].ndim, []
    found = cuts(node, bounds.get)
    for cut in found:
        assert cut.start is not None  # all inputs are folded
        assert cut.stop is not None
        assert cut.step is not None
        # Counted backwards, a stop before the first place is none.
        is_open = cut.step < 0 and cut.stop < -inputs[0].shape[cut.axis]
        kept[cut.axis] = slice(cut.start, None if is_open else cut.stop, cut.step)
        gone += [] if cut.keeps_axis else [cut.axis]
    return numpy.squeeze(inputs[0][tuple(kept)], tuple(gone)) if found else None


def _split(node: Node, port: int, inputs: list[_Array]) -> _Array | None:
    axis = node.attributes["axis"]
    sizes = [fixed_size(value, axis) for value in node.outputs]
    ends = list(accumulate(size or 0 for size in sizes))
    return numpy.split(inputs[0], ends[:-1], axis)[port] if None not in sizes else None


def _divide(node: Node, _port: int, inputs: list[_Array]) -> _Array | None:
    first, second = inputs
    if first.dtype.kind == "f":
        return numpy.divide(first, second) if node.op == "Divide" else None
    # The dialects agree on quotients and remainders of whole numbers unless the signs differ.
    is_natural = (first >= 0).all() and (second > 0).all()
    return (first // second if node.op == "Divide" else first % second) if is_natural else None


def _computed(function: Callable[..., _Array]) -> Callable[[Node, int, list[_Array]], _Array]:
    return lambda _node, _port, inputs: function(*inputs)


#: Operators whose outputs hold elements of the first input (Concat: of all inputs), chosen and placed by the others.
_MOVES = frozenset(
    {"Broadcast", "Concat", "Convert", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "StridedSlice"}
    | {"Transpose", "Unsqueeze", "VariadicSplit"}
)

_RULES: dict[str, Callable[[Node, int, list[_Array]], _Array | None]] = {
    "Broadcast": _broadcast,
    "Concat": lambda node, _port, inputs: numpy.concatenate(inputs, node.attributes["axis"]),
    "Convert": lambda _node, _port, inputs: inputs[0],
    **dict.fromkeys(("Divide", "Mod", "FloorMod"), _divide),
    "Gather": _gather,
    "Identity": lambda _node, _port, inputs: inputs[0],
    "Reshape": _reshape,
    "Squeeze": lambda node, _port, inputs: numpy.squeeze(inputs[0], _axes(node, inputs) or None),
    "Transpose": lambda node, _port, inputs: numpy.transpose(inputs[0], node.attributes["order"]),
    "Unsqueeze": lambda node, _port, inputs: numpy.expand_dims(inputs[0], _axes(node, inputs)),
    **dict.fromkeys(SLICES, _slice),
    **dict.fromkeys(SPLITS, _split),
    **{
        op: _computed(function)
        for op, function in {
            "Abs": numpy.abs,
            "Add": numpy.add,
            "Ceiling": numpy.ceil,
            "Equal": numpy.equal,
            "Exp": numpy.exp,
            "Floor": numpy.floor,
            "Greater": numpy.greater,
            "GreaterEqual": numpy.greater_equal,
            "Less": numpy.less,
            "LessEqual": numpy.less_equal,
            "Log": numpy.log,
            "LogicalAnd": numpy.logical_and,
            "LogicalNot": numpy.logical_not,
            "LogicalOr": numpy.logical_or,
            "Maximum": numpy.maximum,
            "Minimum": numpy.minimum,
            "Multiply": numpy.multiply,
            "Negative": numpy.negative,
            "NotEqual": numpy.not_equal,
            "Power": numpy.power,
            "Reciprocal": numpy.reciprocal,
            "Select": numpy.where,
            "Sqrt": numpy.sqrt,
            "Subtract": numpy.subtract,
        }.items()
    },
}
