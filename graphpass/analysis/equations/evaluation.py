"""Compute tensors of a graph for chosen inputs and lengths.

Masks and rotary tables follow from few inputs: lengths, positions, the padding mask. Computing them for some shows
the function that an exporter spelled out in a hundred operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy

from graphpass.analysis.equations.computable import Computable
from graphpass.analysis.symbolic.arrays import computed, is_known
from graphpass.analysis.symbolic.constants import LARGEST_MASK
from graphpass.analysis.symbolic.equal_sizes import dimensions, is_linear, offset
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.rounding import DTYPES, Array, typed
from graphpass.analysis.symbolic.sizes import Sizes
from graphpass.ir.graph import Node, Value
from graphpass.ir.miss import MissError


class Evaluation:
    """Computes values of a graph, each once.

    Attributes:
        graph: The graph.
    """

    def __init__(
        self, computable: Computable, sizes: Sizes, lengths: Callable[[Expr], int | None], known: Mapping[Value, Array]
    ) -> None:
        """Choose the inputs.

        Args:
            computable: The graph, with nodes that can be computed.
            sizes: Its sizes.
            lengths: Returns the number of a dimension that is not fixed, as ``sizes`` calls it.
            known: Tensors that stand for values; nothing upstream of them is computed.
        """
        self.graph = computable.graph
        self._sizes = sizes
        self._lengths = lengths
        self._arrays: dict[Value, Array] = dict(known)
        self._is_computable = computable.from_values(known)

    def of(self, value: Value) -> Array:
        """Compute ``value``.

        Raises:
            MissError: An operator, an input or a size is not known, or the tensor is too large.
        """
        pending = [value]
        while pending:
            current = pending[-1]
            if current in self._arrays:
                pending.pop()
                continue
            node = self.graph.producer(current)
            known = None if self._is_computable(node) else self._integers(current)
            if known is not None:
                self._arrays[current] = known
                continue
            missing = [source for source in self._sources(node) if source not in self._arrays]
            if missing:
                pending += reversed(missing)
            else:
                self._arrays[current] = self._computed(node, current)
        return self._arrays[value]

    def shape(self, value: Value) -> tuple[int, ...] | None:
        """Return the shape of ``value``; ``None`` if it is known only after execution."""
        array = self._arrays.get(value)
        if array is not None:
            return tuple(array.shape)
        node = self.graph.producer(value)
        if node.op != "Constant" and self._is_computable(node):
            return None
        shape = self._sizes.shape(value)
        sizes = None if shape is None else [self._number(size) for size in shape]
        return None if sizes is None or None in sizes else tuple(size for size in sizes if size is not None)

    def _number(self, size: Expr) -> int | None:
        if not is_linear(size):
            return None
        total = offset(size)
        for dimension, factor in dimensions(size):
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
        if value.element_type not in DTYPES:
            raise MissError(node, f"numbers of type {value.element_type} are not computed ahead")
        if node.op == "ShapeOf":
            array: Array | None = numpy.array(self.shape(node.source()))[
                slice(node.attributes.get("start"), node.attributes.get("end"))
            ]
        elif node.op == "Constant":
            array = self._constant(value)
        else:
            operands = {source: self._arrays[source] for source in node.inputs if source is not None}
            array = computed(self.graph, node, value.port, operands, LARGEST_MASK)
        if array is None or numpy.ma.is_masked(array):
            raise MissError(node, f"{node.op} cannot be computed ahead")
        return typed(numpy.ma.getdata(array), value.element_type)

    def _constant(self, value: Value) -> Array | None:
        try:
            constant = self.graph.constant(value, LARGEST_MASK)
        except FileNotFoundError as error:
            raise MissError(self.graph.producer(value), f"its weights are missing: {error}") from error
        return None if constant is None else constant.astype(DTYPES[value.element_type], copy=False)
