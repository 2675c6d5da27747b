"""Compute what `graphpass.analysis.symbolic.folding` folds, in numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any, TypeAlias

import numpy

from graphpass.ir.axes import cuts
from graphpass.ir.element_types import ELEMENT_TYPES
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import CASTS, SLICES, SPLITS
from graphpass.ir.values import fixed_size

#: Elements of the largest tensor that is read or computed: scales, shapes and indices are small.
LIMIT = 4096

#: Errors of `MOVES` and functions on a graph that is not well formed, or has too few attributes.
MALFORMED = (IndexError, KeyError, TypeError, ValueError)

#: Element types that are computed with; numpy does not know bf16, whose numbers are rounded f32.
DTYPES = {one.name: one.dtype for one in ELEMENT_TYPES.values() if one.dtype} | {"bf16": "float32"}

_Array: TypeAlias = "numpy.ndarray[Any, Any]"


@dataclass(frozen=True, slots=True)
class Fold:
    """Hold a tensor whose elements are known in part.

    Attributes:
        values: Its elements; any number stands for an unknown one.
        known: Marks of the known ones; of the same shape.
    """

    values: _Array
    known: _Array


def folded(graph: Graph, value: Value) -> Fold | None:
    """Fold ``value`` and values upstream of it; ``None`` if nothing is known."""
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
    found: Fold | None = folds[value]
    return found


def _sources(graph: Graph, node: Node) -> list[Value] | None:
    """Order the inputs to fold: constants last, since another input often settles the fold."""
    if node.op in {"Constant", "ShapeOf"}:
        return []
    known = node.op in MOVES or node.op in FUNCTIONS or node.op == "ConstantOfShape"
    if not known or not node.inputs or node.inputs[0] is None:
        return None
    given = [value for value in node.inputs if value is not None]
    return sorted(given, key=lambda value: graph.producer(value).op == "Constant")


def _evaluate(graph: Graph, node: Node, value: Value) -> Fold | None:
    dtype = DTYPES.get(value.element_type)
    if dtype is None:
        return None
    if node.op == "ShapeOf":
        return _shape(node, dtype)
    if node.op == "Constant":
        try:
            held = graph.constant(value, LIMIT)
        except FileNotFoundError:  # a graph may be analyzed without its weights
            return None
        return None if held is None else _known(held.astype(dtype))
    inputs: list[Fold] = [graph.folds[source] for source in node.inputs if source is not None]
    if node.op == "ConstantOfShape":
        filled = numpy.array(node.attributes["value"], dtype)
        return _known(numpy.broadcast_to(filled, inputs[0].values)) if inputs[0].known.all() else None
    try:
        with numpy.errstate(all="ignore"):
            found = _move(node, value, inputs) if node.op in MOVES else _compute(node, inputs)
    except MALFORMED:
        return None
    return None if found is None else Fold(typed(found.values, value.element_type), found.known)


def _compute(node: Node, inputs: list[Fold]) -> Fold | None:
    size = prod(numpy.broadcast_shapes(*(one.values.shape for one in inputs)))
    if size > LIMIT or not all(one.known.all() for one in inputs):
        return None
    if node.op == "Range" and range_size(*(one.values for one in inputs)) > LIMIT:
        return None
    found = FUNCTIONS[node.op](*(one.values for one in inputs))
    return None if found is None else _known(found)


def _move(node: Node, value: Value, inputs: list[Fold]) -> Fold | None:
    """Place elements and their marks by further inputs, which must be known."""
    count = len(inputs) if node.op == "Concat" else 1
    values, masks = [one.values for one in inputs], [one.known for one in inputs]
    is_small = node.op == "Broadcast" or sum(one.size for one in values) <= LIMIT
    if node.op == "Gather" and values[0].size * values[1].size > LIMIT * values[0].shape[node.attributes["axis"]]:
        is_small = False
    if not is_small or not all(mask.all() for mask in masks[count:]):
        return None
    found = MOVES[node.op](node, value.port, values)
    known = MOVES[node.op](node, value.port, masks[:count] + values[count:])
    return None if found is None or known is None else Fold(found, known.astype(bool, copy=False))


def _known(values: _Array) -> Fold:
    return Fold(values, numpy.broadcast_to(numpy.True_, values.shape))


def typed(values: _Array, element_type: str) -> _Array:
    """Return ``values`` in numpy's type for ``element_type``; small tensors of bf16 are rounded to it."""
    # Infinite numbers have no integer: bucketed distances of 0 have such logarithms, which a Where drops.
    with numpy.errstate(invalid="ignore"):
        cast = values.astype(DTYPES[element_type], copy=False)
    if element_type != "bf16" or cast.size > LIMIT:
        return cast
    bits = cast.view(numpy.uint32).astype(numpy.uint64)
    # To the nearest number that the upper 16 bits can hold, of two to the even one.
    rounded = (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(numpy.uint32).view(numpy.float32)
    return numpy.where(numpy.isfinite(cast), rounded, cast)


def _shape(node: Node, dtype: str) -> Fold | None:
    shape = node.source().shape
    if shape is None:
        return None
    sizes = shape[slice(node.attributes.get("start"), node.attributes.get("end"))]
    known = [isinstance(size, int) for size in sizes]
    return Fold(numpy.array([size if isinstance(size, int) else 0 for size in sizes], dtype), numpy.array(known, bool))


def _axes(node: Node, inputs: list[_Array]) -> tuple[int, ...]:
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
    found = numpy.asarray(numpy.take(inputs[0], inputs[1], node.attributes["axis"]), inputs[0].dtype)
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
    if None in sizes and node.op == "VariadicSplit" and len(inputs) > 1:
        sizes = list(_integers(inputs[-1]))
    ends = list(accumulate(size or 0 for size in sizes))
    return numpy.split(inputs[0], ends[:-1], axis)[port] if None not in sizes else None


#: Place elements of the first input (Concat: of all inputs) by the others; of any elements, also of no numbers.
MOVES: dict[str, Callable[[Node, int, list[_Array]], _Array | None]] = {
    "Broadcast": _broadcast,
    "Concat": lambda node, _port, inputs: numpy.concatenate(inputs, node.attributes["axis"]),
    "Gather": _gather,
    "Reshape": _reshape,
    "Squeeze": lambda node, _port, inputs: numpy.squeeze(inputs[0], _axes(node, inputs) or None),
    "Transpose": lambda node, _port, inputs: numpy.transpose(inputs[0], node.attributes["order"]),
    "Unsqueeze": lambda node, _port, inputs: numpy.expand_dims(inputs[0], _axes(node, inputs)),
    **dict.fromkeys(CASTS, lambda _node, _port, inputs: inputs[0]),
    **dict.fromkeys(SLICES, _slice),
    **dict.fromkeys(SPLITS, _split),
}


def _divide(first: _Array, second: _Array) -> _Array | None:
    if first.dtype.kind == "f":
        return numpy.divide(first, second)
    return first // second if _agree(first, second) else None


def _remainder(first: _Array, second: _Array) -> _Array | None:
    return first % second if first.dtype.kind != "f" and _agree(first, second) else None


def _range(*bounds: _Array) -> _Array | None:
    return numpy.arange(*(bound.item() for bound in bounds))


def range_size(start: _Array, stop: _Array, step: _Array) -> float:
    """Return the number of elements of a Range, fractions included; infinite for steps of 0."""
    return float(abs(stop.item() - start.item()) / abs(step.item())) if step.item() else numpy.inf


def _agree(first: _Array, second: _Array) -> bool:
    """Return whether the dialects divide alike: signs must not differ."""
    return bool((first >= 0).all() and (second > 0).all())


#: Operators on the elements of all inputs at one place; a Range's are numbers.
FUNCTIONS: dict[str, Callable[..., _Array | None]] = {
    "Abs": numpy.abs,
    "Add": numpy.add,
    "Ceiling": numpy.ceil,
    "Divide": _divide,
    "Equal": numpy.equal,
    "Exp": numpy.exp,
    "Floor": numpy.floor,
    "FloorMod": _remainder,
    "Greater": numpy.greater,
    "GreaterEqual": numpy.greater_equal,
    "GreaterOrEqual": numpy.greater_equal,
    "Less": numpy.less,
    "LessEqual": numpy.less_equal,
    "LessOrEqual": numpy.less_equal,
    "Log": numpy.log,
    "LogicalAnd": numpy.logical_and,
    "LogicalNot": numpy.logical_not,
    "LogicalOr": numpy.logical_or,
    "Maximum": numpy.maximum,
    "Minimum": numpy.minimum,
    "Mod": _remainder,
    "Multiply": numpy.multiply,
    "Negative": numpy.negative,
    "NotEqual": numpy.not_equal,
    "Power": numpy.power,
    "Range": _range,
    "Reciprocal": numpy.reciprocal,
    "Select": numpy.where,
    "Sqrt": numpy.sqrt,
    "Subtract": numpy.subtract,
}
