"""Fold the integers of shape arithmetic over sizes, as `graphpass.analysis.symbolic.arrays` folds numbers."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import numpy

from graphpass.analysis.symbolic.arrays import MALFORMED, MOVES
from graphpass.analysis.symbolic.linear_size import Classes, Size, Vector, divide, multiply
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import SLICES, SPLITS
from graphpass.ir.types import Dimension

#: Larger tensors are no shapes.
_LARGEST = 16

_INTEGERS = frozenset({"boolean", "i32", "i64"})

Content: TypeAlias = "numpy.ndarray[Any, Any]"
"""An array of `Size`, or ``None`` for elements that are not known."""


class Contents:
    """Record the content of small integer tensors, in topological order."""

    def __init__(self, graph: Graph, classes: Classes) -> None:
        self._graph = graph
        self._classes = classes
        self._known: dict[tuple[int, int], Content] = {}
        #: Outputs of unknown content although that of all inputs is known.
        self._missing: list[tuple[Node, Value]] = []

    def read(self, value: Value | None) -> Content | None:
        """Return the content of ``value`` if any of it is known."""
        found = None if value is None else self._known.get((value.node, value.port))
        if found is not None and self._classes.joins:
            for place, size in enumerate(found.flat):
                if size is not None and size.dimensions:
                    found.flat[place] = self._classes.resolve(size)
        return found

    def note(self, node: Node, value: Value, shape: Vector | None) -> None:
        """Note an output's content if it is small; ``shape`` is that of ShapeOf's input."""
        if value.element_type not in _INTEGERS or value.shape is None or _elements(value.shape) > _LARGEST:
            return
        if node.op == "ShapeOf":
            bounds = slice(node.attributes.get("start"), node.attributes.get("end"))
            found = None if shape is None else _array(shape[bounds])
        elif node.op == "Constant":
            held = self._graph.constant(value, _LARGEST)
            numbers = [] if held is None else [Size.constant(int(number)) for number in held.flat]
            found = None if held is None else _array(numbers).reshape(held.shape)
        else:
            found = self._computed(node, value)
        if found is not None and found.size <= _LARGEST:
            self._known[value.node, value.port] = found

    def know_more(self) -> bool:
        """Return whether new equalities give the content of more outputs."""
        missing, self._missing = self._missing, []
        return any(self._computed(node, value) is not None for node, value in missing)

    def _computed(self, node: Node, value: Value) -> Content | None:
        if node.op not in MOVES and node.op not in _FUNCTIONS:
            return None
        given = [source for source in node.inputs if source is not None]
        inputs = [content for source in given if (content := self._operand(node, source)) is not None]
        if len(inputs) < len(given):
            return None
        found = _moved(node, value, inputs) if node.op in MOVES else _FUNCTIONS[node.op](*inputs)
        if found is None:
            self._missing.append((node, value))
        return found

    def _operand(self, node: Node, value: Value) -> Content | None:
        """Return an input's content; parts of a Concat need not be known."""
        found, shape = self.read(value), value.shape
        sizes = [size for size in shape or () if isinstance(size, int)]
        if found is None and node.op == "Concat" and shape is not None and len(sizes) == len(shape):
            return numpy.full(sizes, None, object) if prod(sizes) <= _LARGEST else None
        return found


def _elements(shape: tuple[Dimension, ...]) -> int:
    return prod(size for size in shape if isinstance(size, int))


def _array(sizes: Any) -> Content:
    made = numpy.empty(len(sizes), object)
    made[:] = sizes
    return made


def _numbers(content: Content) -> numpy.ndarray | None:
    numbers = [None if size is None else size.as_int for size in content.flat]
    return None if None in numbers else numpy.array(numbers, numpy.int64).reshape(content.shape)


def _moved(node: Node, value: Value, inputs: list[Content]) -> Content | None:
    """Place elements of the first input (Concat: of all) by the other inputs' numbers."""
    source = node.inputs[0]
    if node.op in SLICES | SPLITS and inputs[0].ndim != 1:  # a part of a matrix is no shape
        return None
    if value.element_type == "boolean" and source is not None and source.element_type != "boolean":
        return None
    count = len(inputs) if node.op == "Concat" else 1
    places = [numbers for content in inputs[count:] if (numbers := _numbers(content)) is not None]
    if len(places) < len(inputs) - count:
        return None
    try:
        found = MOVES[node.op](node, value.port, inputs[:count] + places)
    except MALFORMED:
        return None
    # A view of another content would change with it.
    return None if found is None else numpy.array(found, object)


def _range(*bounds: Content) -> Content | None:
    numbers = [number.item() for one in bounds if (number := _numbers(one)) is not None and number.size == 1]
    if len(numbers) < len(bounds) or not numbers[2]:
        return None
    return _array([Size.constant(place) for place in range(*numbers)[: _LARGEST + 1]])


def _select(condition: Content, kept: Content, other: Content) -> Content | None:
    known = _numbers(condition)
    return None if known is None else numpy.asarray(numpy.where(known, kept, other), object)


def _equal(one: Size, two: Size) -> Size | None:
    difference = one - two
    if difference.as_int is not None:
        return Size.constant(int(difference.as_int == 0))
    # A size of at least 1 is not 0.
    apart = any((side - Size.constant(1)).is_natural for side in (difference, two - one))
    return Size() if apart else None


def _elementwise(compute: Callable[..., Size | None]) -> Callable[..., Content | None]:
    def of_known(*sizes: Size | None) -> Size | None:
        return None if None in sizes else compute(*sizes)

    def rule(*inputs: Content) -> Content | None:
        found = numpy.asarray(numpy.frompyfunc(of_known, len(inputs), 1)(*inputs), object)
        return None if None in found.flat else found

    return rule


_FUNCTIONS: dict[str, Callable[..., Content | None]] = {
    "Add": _elementwise(Size.__add__),
    "Divide": _elementwise(divide),
    "Equal": _elementwise(_equal),
    "Multiply": _elementwise(multiply),
    "Negative": _elementwise(Size.__neg__),
    "Range": _range,
    "Select": _select,
    "Subtract": _elementwise(Size.__sub__),
}
