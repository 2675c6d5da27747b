"""The integers that shape arithmetic computes of sizes and constants."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy

from graphpass.analysis.shapes.linear_size import Classes, Size, Vector, divide, multiply
from graphpass.ir.values import KEEPS_ORDER

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Node, Value
    from graphpass.ir.types import Dimension

__all__ = ["Contents"]

#: Larger tensors are no shapes.
_LARGEST = 16

_INTEGERS = frozenset({"boolean", "i32", "i64"})

Content: TypeAlias = "numpy.ndarray[Any, numpy.dtype[numpy.object_]]"
"""An array of `Size`."""


class Contents:
    """Small integer tensors of a graph, noted in topological order."""

    def __init__(self, graph: Graph, classes: Classes, step_port: int) -> None:
        """Create an empty record.

        Args:
            graph: The model.
            classes: Dimensions that are known to be equal.
            step_port: The input of a Slice that holds its steps.
        """
        self._step_port = step_port
        self._graph = graph
        self._classes = classes
        self._known: dict[tuple[int, int], Content] = {}

    def read(self, value: Value | None) -> Content | None:
        """Return the content of ``value``, if it is known."""
        found = None if value is None else self._known.get((value.node, value.port))
        if found is not None and self._classes.joins:
            for place, size in enumerate(found.flat):
                found.flat[place] = self._classes.resolve(size)
        return found

    def note(self, node: Node, value: Value, shape: Vector | None) -> None:
        """Note the content of an output of ``node``, if it is small and made of sizes and constants.

        Args:
            node: The operator.
            value: One of its outputs.
            shape: The sizes of the input, for ShapeOf.
        """
        if value.element_type not in _INTEGERS or value.shape is None or _elements(value.shape) > _LARGEST:
            return
        if node.op == "Constant":
            found = self._constant(value)
        elif node.op == "ShapeOf":
            bounds = slice(node.attributes.get("start"), node.attributes.get("end"))
            found = None if shape is None else _array(shape[bounds])
        elif node.op == "Slice":
            found = self._sliced(node)
        else:
            rule = _RULES.get(node.op)
            if rule is None:
                return
            given = [source for source in node.inputs if source is not None]
            inputs = [content for source in given if (content := self.read(source)) is not None]
            found = rule(node, value, inputs) if len(inputs) == len(given) else None
        if found is not None and found.size <= _LARGEST:
            self._known[value.node, value.port] = found

    def _sliced(self, node: Node) -> Content | None:
        """Return a part of a vector."""
        data = self.read(node.inputs[0])
        steps = node.inputs[self._step_port] if len(node.inputs) > self._step_port else None
        contents = [self.read(source) for source in (*node.inputs[1:3], *([] if steps is None else [steps]))]
        bounds = [None if content is None or content.size != 1 else content.item().as_int for content in contents]
        return None if data is None or data.ndim != 1 or None in bounds else data[slice(*bounds)]

    def _constant(self, value: Value) -> Content | None:
        held = self._graph.constant(value, _LARGEST)
        if held is None:
            return None
        return _array([Size.constant(int(number)) for number in held.flat]).reshape(held.shape)


def _elements(shape: tuple[Dimension, ...]) -> int:
    """Return the number of elements that ``shape`` has at least."""
    return prod(size for size in shape if isinstance(size, int))


def _array(sizes: Any) -> Content:
    made = numpy.empty(len(sizes), object)
    made[:] = sizes
    return made


def _laid_out(node: Node, value: Value, inputs: list[Content]) -> Content | None:
    """Convert, Reshape, Squeeze ..: the same elements in order."""
    source = node.inputs[0]
    if value.element_type == "boolean" and source is not None and source.element_type != "boolean":
        return None
    return _shaped(inputs[0], value)


def _shaped(content: Content, value: Value) -> Content | None:
    shape = [size if isinstance(size, int) else -1 for size in value.shape or ()]
    try:
        return content.reshape(shape)
    except ValueError:
        return None


def _concat(node: Node, value: Value, inputs: list[Content]) -> Content | None:  # noqa: ARG001
    return numpy.concatenate(inputs, node.attributes["axis"])


def _gather(node: Node, value: Value, inputs: list[Content]) -> Content | None:  # noqa: ARG001
    places, axis = _numbers(inputs[1]), node.attributes.get("axis")
    if places is None or axis is None or node.attributes.get("batch_dims"):
        return None
    try:
        return numpy.asarray(inputs[0].take(places, axis), object)
    except IndexError:
        return None


def _strided_slice(node: Node, value: Value, inputs: list[Content]) -> Content | None:
    given, bounds = node.attributes, [_numbers(content) for content in inputs[1:]]
    if any(bound is None for bound in bounds) or any(given["new_axis_mask"]) or any(given["ellipsis_mask"]):
        return None
    starts, stops, *steps = (bound.tolist() for bound in bounds if bound is not None)
    index = []
    for place, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        masked = {name: any(given[name][place : place + 1]) for name in given if name.endswith("_mask")}
        first = None if masked["begin_mask"] else start
        last = None if masked["end_mask"] else stop
        if masked["shrink_axis_mask"]:
            first = first or 0
            last = first + 1 or None
        index.append(slice(first, last, *(step[place] for step in steps)))
    return _shaped(inputs[0][tuple(index)], value)


def _split(node: Node, value: Value, inputs: list[Content]) -> Content | None:
    """Return a part of a vector."""
    lengths = [output.shape[0] for output in node.outputs if output.shape and len(output.shape) == 1]
    known = [length for length in lengths if isinstance(length, int)]
    start = sum(known[: value.port])
    return inputs[0][start : start + known[value.port]] if len(known) == len(node.outputs) else None


def _broadcast(node: Node, value: Value, inputs: list[Content]) -> Content | None:
    shape = [size for size in value.shape or () if isinstance(size, int)]
    if len(shape) < len(value.shape or ()) or node.attributes.get("mode") == "explicit":
        return None
    return numpy.broadcast_to(inputs[0], shape).copy()


def _range(node: Node, value: Value, inputs: list[Content]) -> Content | None:  # noqa: ARG001
    bounds = [_numbers(content) for content in inputs]
    if any(bound is None or bound.size != 1 for bound in bounds):
        return None
    places = range(*(int(bound.item()) for bound in bounds if bound is not None))
    return _array([Size.constant(place) for place in places[: _LARGEST + 1]])


def _select(node: Node, value: Value, inputs: list[Content]) -> Content | None:  # noqa: ARG001
    condition = _numbers(inputs[0])
    return None if condition is None else numpy.asarray(numpy.where(condition, *inputs[1:]), object)


def _numbers(content: Content) -> numpy.ndarray | None:
    """Return ``content`` as plain integers, if it is."""
    numbers = [size.as_int for size in content.flat]
    return None if None in numbers else numpy.array(numbers, numpy.int64).reshape(content.shape)


def _equal(one: Size, two: Size) -> Size | None:
    difference = one - two
    if difference.as_int is not None:
        return Size.constant(int(difference.as_int == 0))
    # A size of at least 1 is not 0.
    apart = any((side - Size.constant(1)).is_natural for side in (difference, two - one))
    return Size() if apart else None


_Rule: TypeAlias = "Callable[[Node, Value, list[Content]], Content | None]"


def _elementwise(compute: Callable[..., Size | None]) -> _Rule:
    def rule(node: Node, value: Value, inputs: list[Content]) -> Content | None:  # noqa: ARG001
        found = numpy.asarray(numpy.frompyfunc(compute, len(inputs), 1)(*inputs), object)
        return None if any(size is None for size in found.flat) else found

    return rule


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(KEEPS_ORDER, _laid_out),
    "Add": _elementwise(Size.__add__),
    "Broadcast": _broadcast,
    "Concat": _concat,
    "Divide": _elementwise(divide),
    "Equal": _elementwise(_equal),
    "Gather": _gather,
    "Multiply": _elementwise(multiply),
    "Negative": _elementwise(Size.__neg__),
    "Range": _range,
    "Select": _select,
    "Split": _split,
    "StridedSlice": _strided_slice,
    "Subtract": _elementwise(Size.__sub__),
    "VariadicSplit": _split,
}
