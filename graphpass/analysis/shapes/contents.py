"""The integers that shape arithmetic computes of sizes and constants."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from graphpass.analysis.shapes.linear_size import Classes, Size, Vector, divide, multiply
from graphpass.ir.operators import KEEPS_ORDER

if TYPE_CHECKING:
    import numpy

    from graphpass.ir.graph import Graph, Node, Value
    from graphpass.ir.types import Dimension

__all__ = ["Contents"]

#: Larger tensors are no shapes.
_LARGEST = 16

_INTEGERS = frozenset({"boolean", "i32", "i64"})

Content: TypeAlias = "numpy.ndarray[Any, Any]"
"""An array of `Size`, or ``None`` for elements that are not known."""


class Contents:
    """Small integer tensors of a graph, noted in topological order."""

    def __init__(self, graph: Graph, classes: Classes, step_port: int) -> None:
        """Create an empty record.

        Args:
            graph: The model.
            classes: Dimensions that are known to be equal.
            step_port: The input of a Slice that holds its steps.
        """
        self._graph = graph
        self._classes = classes
        self._step_port = step_port
        self._known: dict[tuple[int, int], Content] = {}
        #: Outputs whose content is not known although that of all inputs is.
        self._missing: list[tuple[Node, Value]] = []

    def read(self, value: Value | None) -> Content | None:
        """Return the content of ``value``, if anything of it is known."""
        found = None if value is None else self._known.get((value.node, value.port))
        if found is not None and self._classes.joins:
            for place, size in enumerate(found.flat):
                if size is not None and size.dimensions:
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
        if node.op == "ShapeOf":
            bounds = slice(node.attributes.get("start"), node.attributes.get("end"))
            found = None if shape is None else _array(shape[bounds])
        else:
            found = self._constant(value) if node.op == "Constant" else self._computed(node, value)
        if found is not None and found.size <= _LARGEST:
            self._known[value.node, value.port] = found

    def know_more(self) -> bool:
        """Whether equalities that were found since tell the content of more outputs."""
        missing, self._missing = self._missing, []
        return any(self._computed(node, value) is not None for node, value in missing)

    def _constant(self, value: Value) -> Content | None:
        held = self._graph.constant(value, _LARGEST)
        if held is None:
            return None
        return _array([Size.constant(int(number)) for number in held.flat]).reshape(held.shape)

    def _computed(self, node: Node, value: Value) -> Content | None:
        if node.op == "Slice":
            return self._sliced(node)
        rule, given = _RULES.get(node.op), [source for source in node.inputs if source is not None]
        if rule is None:
            return None
        inputs = [content for source in given if (content := self._operand(node, source)) is not None]
        found = rule(node, value, inputs) if len(inputs) == len(given) else None
        if found is None and len(inputs) == len(given):
            self._missing.append((node, value))
        return found

    def _operand(self, node: Node, value: Value) -> Content | None:
        """Return the content of an input; all parts of a Concat need not be known."""
        import numpy

        found = self.read(value)
        if found is None and node.op == "Concat" and value.shape is not None and _is_fixed(value.shape):
            return numpy.full(value.shape, None, object)
        return found

    def _sliced(self, node: Node) -> Content | None:
        """Return a part of a vector."""
        data = self.read(node.inputs[0])
        inputs = [*node.inputs[1:3], *node.inputs[self._step_port : self._step_port + 1]]
        contents = [self.read(value) for value in inputs if value is not None]
        bounds = [None if content is None else _number(content) for content in contents]
        return None if data is None or data.ndim != 1 or None in bounds else data[slice(*bounds)]


def _elements(shape: tuple[Dimension, ...]) -> int:
    """Return the number of elements that ``shape`` has at least."""
    return prod(size for size in shape if isinstance(size, int))


def _is_fixed(shape: tuple[Dimension, ...]) -> TypeGuard[tuple[int, ...]]:
    return all(isinstance(size, int) for size in shape) and _elements(shape) <= _LARGEST


def _array(sizes: Any) -> Content:
    import numpy

    made = numpy.empty(len(sizes), object)
    made[:] = sizes
    return made


def _numbers(content: Content) -> numpy.ndarray | None:
    """Return ``content`` as plain integers, if it is."""
    import numpy

    numbers = [None if size is None else size.as_int for size in content.flat]
    return None if None in numbers else numpy.array(numbers, numpy.int64).reshape(content.shape)


def _number(content: Content) -> int | None:
    """Return the one integer that ``content`` is."""
    numbers = _numbers(content)
    return int(numbers.item()) if numbers is not None and numbers.size == 1 else None


def _laid_out(node: Node, value: Value, inputs: list[Content]) -> Content | None:
    """Convert, Reshape, Squeeze ..: the same elements in order."""
    source = node.inputs[0]
    if value.element_type == "boolean" and source is not None and source.element_type != "boolean":
        return None
    shape = [size if isinstance(size, int) else -1 for size in value.shape or ()]
    fits = shape.count(-1) <= 1 and (-1 in shape or prod(shape) == inputs[0].size)
    return inputs[0].reshape(shape) if fits else None


def _concat(node: Node, value: Value, inputs: list[Content]) -> Content | None:  # noqa: ARG001 - all are called alike
    import numpy

    return numpy.concatenate(inputs, node.attributes["axis"])


def _gather(node: Node, value: Value, inputs: list[Content]) -> Content | None:  # noqa: ARG001
    import numpy

    places, axis = _numbers(inputs[1]), node.attributes.get("axis")
    if places is None or axis is None or node.attributes.get("batch_dims"):
        return None
    length = inputs[0].shape[axis]
    fits = (places >= -length).all() and (places < length).all()
    return numpy.asarray(inputs[0].take(places, axis), object) if fits else None


def _strided_slice(node: Node, value: Value, inputs: list[Content]) -> Content | None:
    """Return a part of a vector, or one element."""
    given, bounds = node.attributes, [_number(content) for content in inputs[1:]]
    if inputs[0].ndim != 1 or None in bounds or any(given["new_axis_mask"]) or any(given["ellipsis_mask"]):
        return None
    start, stop = (
        None if any(given[f"{name}_mask"][:1]) else bounds[port] for port, name in enumerate(("begin", "end"))
    )
    if any(given["shrink_axis_mask"][:1]):
        stop = (start or 0) + 1 or None
    found = inputs[0][slice(start, stop, *bounds[2:])]
    return found.reshape(()) if value.rank == 0 and found.size == 1 else found


def _split(node: Node, value: Value, inputs: list[Content]) -> Content | None:
    """Return a part of a vector."""
    lengths = [output.shape[0] for output in node.outputs if output.shape and len(output.shape) == 1]
    known = [length for length in lengths if isinstance(length, int)]
    start = sum(known[: value.port])
    return inputs[0][start : start + known[value.port]] if len(known) == len(node.outputs) else None


def _broadcast(node: Node, value: Value, inputs: list[Content]) -> Content | None:
    import numpy

    shape = value.shape or ()
    if not _is_fixed(shape) or node.attributes.get("mode") == "explicit":
        return None
    return numpy.broadcast_to(inputs[0], shape).copy()


def _range(node: Node, value: Value, inputs: list[Content]) -> Content | None:  # noqa: ARG001
    bounds = [_number(content) for content in inputs]
    if None in bounds:
        return None
    return _array([Size.constant(place) for place in range(*bounds)[: _LARGEST + 1]])  # type: ignore[arg-type]


def _select(node: Node, value: Value, inputs: list[Content]) -> Content | None:  # noqa: ARG001
    import numpy

    condition = _numbers(inputs[0])
    return None if condition is None else numpy.asarray(numpy.where(condition, *inputs[1:]), object)


def _equal(one: Size, two: Size) -> Size | None:
    difference = one - two
    if difference.as_int is not None:
        return Size.constant(int(difference.as_int == 0))
    # A size of at least 1 is not 0.
    apart = any((side - Size.constant(1)).is_natural for side in (difference, two - one))
    return Size() if apart else None


_Rule: TypeAlias = "Callable[[Node, Value, list[Content]], Content | None]"


def _elementwise(compute: Callable[..., Size | None]) -> _Rule:
    def of_known(*sizes: Size | None) -> Size | None:
        return None if None in sizes else compute(*sizes)

    def rule(node: Node, value: Value, inputs: list[Content]) -> Content | None:  # noqa: ARG001
        import numpy

        found = numpy.asarray(numpy.frompyfunc(of_known, len(inputs), 1)(*inputs), object)
        return None if None in found.flat else found

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
