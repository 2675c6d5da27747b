"""Compute tensors of a graph for chosen inputs and lengths.

Masks and rotary tables depend on few inputs: lengths, positions, the padding mask. Their values at samples identify
the function that an exporter decomposed into a hundred operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy

from graphpass.analysis.caches.masks import find_step_lengths
from graphpass.analysis.symbolic.arrays import computed, is_known
from graphpass.analysis.symbolic.constants import LARGEST_MASK
from graphpass.analysis.symbolic.equal_sizes import dimensions, is_linear, size_at
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.rounding import DTYPES, Array, typed
from graphpass.analysis.symbolic.sizes import Sizes, infer_sizes
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss, MissError, or_miss
from graphpass.ir.model import Model


def f32_shape(sizes: Sizes, producer: Node, value: Value, number: Callable[[Expr], int]) -> list[int]:
    """Return the shape of an f32 tensor.

    Args:
        sizes: Sizes of the tensors of the graph.
        producer: The producer of ``value``, the node of the miss.
        value: The tensor.
        number: Returns the size of a dimension.

    Raises:
        MissError: The tensor has another type, or its shape is unknown.
    """
    shape = sizes.shape(value)
    if shape is None or value.element_type != "f32" or not all(map(is_linear, shape)):
        raise MissError(producer, f"expected {value.name} to be f32 with a known shape")
    return [size_at(size, number) for size in shape]


@dataclass(frozen=True, slots=True)
class SampledStep:
    """Lengths of one step: ``length`` new tokens of ``batch`` sequences after ``past`` positions."""

    batch: int
    past: int
    length: int

    @property
    def total(self) -> int:
        """Return the number of positions after the step."""
        return self.past + self.length


class Evaluation:
    """Values of a graph for given inputs; each is computed once.

    Attributes:
        graph: The graph.
    """

    def __init__(
        self, graph: Graph, sizes: Sizes, lengths: Callable[[Expr], int | None], known: Mapping[Value, Array]
    ) -> None:
        """Set the inputs without computing a value.

        Args:
            graph: The graph.
            sizes: Sizes of its tensors.
            lengths: Returns the size of a dynamic dimension in ``sizes``; ``None`` if unknown.
            known: Arrays of values; operators upstream of these values are not computed.
        """
        self.graph = graph
        self._sizes = sizes
        self._lengths = lengths
        self._arrays: dict[Value, Array | Miss] = dict(known)

    def of(self, value: Value) -> Array:
        """Compute ``value``.

        Returns:
            Its elements, in its shape.

        Raises:
            MissError: An operator, input or size is unknown, or the tensor is too large.
        """
        pending = [value]
        while pending:
            current = pending[-1]
            node = self.graph.producer(current)
            if current in self._arrays:
                pending.pop()
            elif isinstance(missing := self._missing(node), Value):
                pending.append(missing)
            else:
                result = missing or self._computed(node, current)
                integers = self._integers(current) if isinstance(result, Miss) else None
                self._arrays[current] = result if integers is None else integers
        array = self._arrays[value]
        if isinstance(array, Miss):
            raise MissError(array.node, array.reason)
        return array

    def _missing(self, node: Node) -> Value | Miss | None:
        """Return the operand to compute next, or the miss that prevents computing ``node``."""
        if node.op == "ShapeOf":
            # The shape of a tensor that cannot be computed follows from its sizes.
            is_tried = node.source() in self._arrays or self.graph.producer(node.source()).op == "Constant"
            return None if is_tried else node.source()
        if node.op != "Constant" and not is_known(node):
            return Miss(node, f"{node.op} is not computed ahead")
        # Constants last: another operand often shows earlier that the result is unknown.
        for source in sorted(node.sources, key=lambda source: self.graph.producer(source).op == "Constant"):
            array = self._arrays.get(source)
            if array is None or isinstance(array, Miss):
                return source if array is None else array
        return None

    def _number(self, size: Expr) -> int | None:
        if not is_linear(size):
            return None
        known = {dimension: self._lengths(dimension) for dimension, _ in dimensions(size)}
        return None if None in known.values() else size_at(size, lambda dimension: known[dimension] or 0)

    def _integers(self, value: Value) -> Array | None:
        """Return the integers of shape arithmetic, from sizes; ``None`` if unknown."""
        content = self._sizes.content(value)
        if content is None or value.shape is None or value.element_type not in {"i32", "i64"}:
            return None
        numbers = [self._number(size) for size in content]
        shape = tuple(size for size in value.shape if isinstance(size, int))
        if None in numbers or len(shape) != len(value.shape):
            return None
        return numpy.array(numbers, DTYPES[value.element_type]).reshape(shape)

    @or_miss
    def _computed(self, node: Node, value: Value) -> Array:
        if value.element_type not in DTYPES:
            raise MissError(node, f"numbers of type {value.element_type} are not computed ahead")
        if node.op == "ShapeOf":
            array: Array | None = numpy.array(self._shape(node.source()))[
                slice(node.attributes.get("start"), node.attributes.get("end"))
            ]
        elif node.op == "Constant":
            array = self._constant(value)
        else:
            known = ((source, self._arrays[source]) for source in node.sources)
            operands = {source: operand for source, operand in known if not isinstance(operand, Miss)}
            array = computed(self.graph, node, value.port, operands, LARGEST_MASK)
        if array is None or numpy.ma.is_masked(array):
            raise MissError(node, f"{node.op} cannot be computed ahead")
        return typed(numpy.ma.getdata(array), value.element_type)

    def _shape(self, value: Value) -> tuple[int, ...]:
        """Return the shape of a tensor, from its sizes if it cannot be computed.

        Raises:
            MissError: A size is unknown.
        """
        array = self._arrays.get(value)
        if array is not None and not isinstance(array, Miss):
            return tuple(array.shape)
        shape = self._sizes.shape(value)
        sizes = [None] if shape is None else [self._number(size) for size in shape]
        if None in sizes:
            assert array is not None, "shapes of constants are known"
            raise MissError(array.node, array.reason)
        return tuple(size for size in sizes if size is not None)

    def _constant(self, value: Value) -> Array | None:
        try:
            constant = self.graph.constant(value, LARGEST_MASK)
        except FileNotFoundError as error:
            raise MissError(self.graph.producer(value), f"its weights are missing: {error}") from error
        return None if constant is None else constant.astype(DTYPES[value.element_type], copy=False)


def evaluation_at(model: Model, step: SampledStep, known: Mapping[Value, Array]) -> Evaluation:
    """Return an evaluation of one step.

    Args:
        model: The model.
        step: Lengths of the step, which determine dynamic dimensions.
        known: Arrays of inputs or intermediate values; operators upstream of these values are not computed.
    """
    lengths = model.analysis(find_step_lengths)

    def number(dimension: Expr) -> int | None:
        length = lengths.get(dimension)
        return None if length is None else int(getattr(step, length))

    return Evaluation(model.graph, model.analysis(infer_sizes), number, known)
