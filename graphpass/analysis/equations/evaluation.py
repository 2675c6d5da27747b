"""Compute tensors of a graph for chosen inputs and lengths.

Masks and tables of angles follow from few inputs: lengths, positions, the padding mask. Computing them for some shows
the function that an exporter spelled out in a hundred operators. Only operators with one meaning in both dialects are
computed, and the attributes in which they differ are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, TypeAlias

import numpy

from graphpass.analysis.shapes.linear_size import Dimension, Size
from graphpass.analysis.shapes.sizes import Sizes
from graphpass.ir.folding import DTYPES, FUNCTIONS, MALFORMED, MOVES, range_size, typed
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.pattern import MissError

Array: TypeAlias = "numpy.ndarray[Any, Any]"

#: Elements of the largest constant that is read, as `graphpass.analysis.masks.constants.LARGEST_MASK`, and of the
#: largest tensor that is computed.
LARGEST = 1 << 24

#: Errors of numpy on operands that do not fit, as they are in models for other lengths.
_UNFIT = (*MALFORMED, OverflowError, ZeroDivisionError)


class Evaluation:
    """Computes values of a graph, each once.

    Attributes:
        graph: The graph.
    """

    def __init__(
        self, graph: Graph, sizes: Sizes, lengths: Callable[[Dimension], int | None], given: Mapping[Value, Array]
    ) -> None:
        """Choose the inputs.

        Args:
            graph: The graph.
            sizes: Its sizes.
            lengths: Returns the number of a dimension that is not fixed, as ``sizes`` calls it.
            given: Tensors that stand for values; nothing upstream of them is computed.
        """
        self.graph = graph
        self._sizes = sizes
        self._lengths = lengths
        self._found: dict[Value, Array] = dict(given)
        self._marks: dict[int, bool] = {value.node: True for value in given}

    def _is_computable(self, start: Node) -> bool:
        """Return whether no activations are upstream of ``start``, except for their shapes."""
        marks, pending = self._marks, [start]
        while pending:
            node = pending[-1]
            sources = [value.node for value in node.inputs if value is not None]
            if node.index in marks:
                pending.pop()
            elif node.op in {"Constant", "ShapeOf"} or not is_known(node):
                marks[node.index] = node.op in {"Constant", "ShapeOf"}
            elif any(marks.get(source) is False for source in sources):
                marks[node.index] = False
            elif missing := [source for source in sources if source not in marks]:
                pending.append(self.graph.nodes[missing[0]])
            else:
                marks[node.index] = True
        return marks[start.index]

    def of(self, value: Value) -> Array:
        """Compute ``value``.

        Raises:
            MissError: An operator, an input or a size is not known, or the tensor is too large.
        """
        pending = [value]
        while pending:
            current = pending[-1]
            if current in self._found:
                pending.pop()
                continue
            node = self.graph.producer(current)
            known = None if self._is_computable(node) else self._integers(current)
            if known is not None:
                self._found[current] = known
                continue
            missing = [source for source in self._sources(node) if source not in self._found]
            if missing:
                pending += reversed(missing)
            else:
                self._found[current] = self._computed(node, current)
        return self._found[value]

    def shape(self, value: Value) -> tuple[int, ...] | None:
        """Return the shape of ``value``; ``None`` if only computing it tells."""
        held = self._found.get(value)
        if held is not None:
            return tuple(held.shape)
        node = self.graph.producer(value)
        if node.op != "Constant" and self._is_computable(node):
            return None
        shape = self._sizes.shape(value)
        found = None if shape is None else [self._number(size) for size in shape]
        return None if found is None or None in found else tuple(size for size in found if size is not None)

    def _number(self, size: Size) -> int | None:
        total = size.number
        for dimension, factor in size.dimensions:
            length = self._lengths(dimension)
            if length is None:
                return None
            total += length * factor
        return total

    def _integers(self, value: Value) -> Array | None:
        """Return the integers of shape arithmetic on activations."""
        content = self._sizes.content(value)
        if content is None or value.shape is None or value.element_type not in {"i32", "i64"}:
            return None
        numbers = [self._number(size) for size in content]
        shape = tuple(size for size in value.shape if isinstance(size, int))
        if None in numbers or len(shape) != len(value.shape):
            return None
        return numpy.array(numbers, DTYPES[value.element_type]).reshape(shape)

    def _sources(self, node: Node) -> list[Value]:
        if node.op == "Constant":
            return []
        if node.op == "ShapeOf":
            return [] if self.shape(node.source()) is not None else [node.source()]
        if not is_known(node):
            raise MissError(node, f"{node.op} is not computed ahead")
        return [value for value in node.inputs if value is not None]

    def _computed(self, node: Node, value: Value) -> Array:
        if value.element_type not in DTYPES or value.element_type == "bf16":
            raise MissError(node, f"numbers of type {value.element_type} are not computed ahead")
        if node.op == "ShapeOf":
            found: Array | None = numpy.array(self.shape(node.source()))[
                slice(node.attributes.get("start"), node.attributes.get("end"))
            ]
        elif node.op == "Constant":
            found = self._constant(value)
        else:
            inputs = [self._found[source] for source in node.inputs if source is not None]
            try:
                with numpy.errstate(all="ignore"):
                    found = self._result(node, value, inputs)
            except _UNFIT as error:
                raise MissError(node, f"{node.op} cannot be computed ahead: {error}") from error
        if found is None:
            raise MissError(node, f"{node.op} cannot be computed ahead")
        return typed(found, value.element_type)

    def _constant(self, value: Value) -> Array | None:
        try:
            held = self.graph.constant(value, LARGEST)
        except FileNotFoundError as error:
            raise MissError(self.graph.producer(value), f"its weights are missing: {error}") from error
        return None if held is None else held.astype(DTYPES[value.element_type], copy=False)

    def _result(self, node: Node, value: Value, inputs: list[Array]) -> Array | None:
        if node.op == "Range" and range_size(*inputs) > LARGEST:
            return None
        if node.op in FUNCTIONS and numpy.prod(numpy.broadcast_shapes(*(one.shape for one in inputs))) > LARGEST:
            return None
        if node.op in MOVES:
            return MOVES[node.op](node, value.port, inputs)
        return FUNCTIONS[node.op](*inputs) if node.op in FUNCTIONS else _FURTHER[node.op](node, inputs)


def is_known(node: Node) -> bool:
    """Return whether `Evaluation` computes the operator of ``node``."""
    return node.op in MOVES or node.op in FUNCTIONS or node.op in _FURTHER


def _constant_of_shape(node: Node, inputs: list[Array]) -> Array:
    return numpy.full([int(size) for size in inputs[0].reshape(-1)], node.attributes["value"])


def _running_sum(node: Node, inputs: list[Array]) -> Array | None:
    if node.attributes.get("exclusive") or node.attributes.get("reverse"):
        return None
    return numpy.cumsum(inputs[0], int(inputs[1].item()))


def _flatten(node: Node, inputs: list[Array]) -> Array:
    axis = node.attributes.get("axis", 1)
    rows = int(numpy.prod(inputs[0].shape[:axis], dtype=int))
    return inputs[0].reshape(rows, -1) if inputs[0].size else inputs[0].reshape(rows, 0)


def _matmul(node: Node, inputs: list[Array]) -> Array:
    first, second = inputs
    first = first.swapaxes(-1, -2) if node.attributes["transpose_a"] else first
    return first @ (second.swapaxes(-1, -2) if node.attributes["transpose_b"] else second)


def _scatter(node: Node, inputs: list[Array]) -> Array | None:
    if node.attributes.get("reduction", b"none") != b"none":
        return None
    data, indices, updates = inputs
    result = data.copy()
    result[tuple(numpy.moveaxis(indices, -1, 0))] = updates
    return result


def _padded(node: Node, inputs: list[Array]) -> Array | None:
    rank, ends = inputs[0].ndim, inputs[2] if len(inputs) > 2 and inputs[2].size == inputs[0].ndim else None
    before, after = (inputs[1], ends) if ends is not None else (inputs[1][:rank], inputs[1][rank:])
    if not before.any() and not after.any():
        return inputs[0]
    # Modes are not in the graph; a constant alone has a number to pad with.
    number = inputs[3:4] if ends is not None else inputs[2:3]
    if not number or len(node.inputs) > len(inputs) or before.size != rank or min(*before, *after) < 0:
        return None
    return numpy.pad(inputs[0], list(zip(before, after, strict=True)), constant_values=number[0].item())


def _reduced(function: Callable[..., Array]) -> Callable[[Node, list[Array]], Array | None]:
    def reduce_axes(node: Node, inputs: list[Array]) -> Array | None:
        given = inputs[1] if len(inputs) > 1 else node.attributes.get("axes")
        axes = None if given is None else tuple(int(axis) for axis in numpy.reshape(given, -1))
        # Ranks in bodies may not be known.
        rank = node.outputs[0].rank
        keeps = node.attributes.get("keeps_axes", None if rank is None else rank == inputs[0].ndim)
        # The dialects disagree on a list of no axes.
        return None if keeps is None or axes == () else function(inputs[0], axis=axes, keepdims=keeps)

    return reduce_axes


def _triangle(node: Node, inputs: list[Array]) -> Array:
    offset = int(inputs[1].item()) if len(inputs) > 1 else 0
    return numpy.triu(inputs[0], offset) if node.attributes["upper"] else numpy.tril(inputs[0], offset)


def _sum(node: Node, inputs: list[Array]) -> Array | None:
    # Without axes it sums all or none, by an attribute that is not in the graph.
    has_axes = len(inputs) > 1 or "axes" in node.attributes
    return _reduced(numpy.sum)(node, inputs) if has_axes else None


#: Functions of single elements that loops over tokens compute.
ELEMENTWISE: dict[str, Callable[[Array], Array]] = {
    "Exp": numpy.exp,
    "Negative": numpy.negative,
    "Sigmoid": lambda array: 1 / (1 + numpy.exp(-array)),
    "Softplus": lambda array: numpy.logaddexp(array, 0),
}

#: Operators that masks, angles and updates of states are made of, besides those that `graphpass.ir.folding` folds.
_FURTHER: dict[str, Callable[[Node, list[Array]], Array | None]] = {
    "BitwiseAnd": lambda _node, inputs: numpy.bitwise_and(*inputs),
    "BitwiseNot": lambda _node, inputs: numpy.bitwise_not(inputs[0]),
    "BitwiseOr": lambda _node, inputs: numpy.bitwise_or(*inputs),
    "ConstantOfShape": _constant_of_shape,
    "Cos": lambda _node, inputs: numpy.cos(inputs[0]),
    "CumSum": _running_sum,
    "Einsum": lambda node, inputs: numpy.einsum(node.attributes["equation"].decode(), *inputs),
    "Flatten": _flatten,
    "GatherElements": lambda node, inputs: numpy.take_along_axis(inputs[0], inputs[1], node.attributes.get("axis", 0)),
    "IsNaN": lambda _node, inputs: numpy.isnan(inputs[0]),
    "MatMul": _matmul,
    "ReduceSum": _sum,
    "Max": lambda _node, inputs: reduce(numpy.maximum, inputs),
    "Min": lambda _node, inputs: reduce(numpy.minimum, inputs),
    "Pad": _padded,
    "ReduceMax": _reduced(numpy.max),
    "ReduceMin": _reduced(numpy.min),
    "ReduceProd": _reduced(numpy.prod),
    "ScatterNDUpdate": _scatter,
    "Sigmoid": lambda _node, inputs: ELEMENTWISE["Sigmoid"](inputs[0]),
    "Sin": lambda _node, inputs: numpy.sin(inputs[0]),
    "Softplus": lambda _node, inputs: ELEMENTWISE["Softplus"](inputs[0]),
    "Tile": lambda _node, inputs: numpy.tile(inputs[0], [int(count) for count in inputs[1].reshape(-1)]),
    "Trilu": _triangle,
}
