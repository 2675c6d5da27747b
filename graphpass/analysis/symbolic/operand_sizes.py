"""Sizes and integers of tensors that are operands of other operators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from graphpass.analysis.symbolic.equal_sizes import EqualSizes, Vector
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.ir.graph import Graph, Value

if TYPE_CHECKING:
    import numpy

#: Maximum number of elements of an integer tensor whose content is inferred.
LARGEST = 16

Inferred: TypeAlias = "tuple[Expr | None, ...] | None"
"""The size along each axis, ``None`` if unknown; ``None`` if the rank is unknown."""


class OperandSizes(ABC):
    """Sizes of tensors, and integers of small tensors.

    Attributes:
        proves: Whether sizes are equal only if they are in every execution that succeeds; see
            `graphpass.analysis.symbolic.sizes`.
        is_exact: Whether the size of a slice is unknown unless its start is proven to be within the axis.
        has_outer_cuts: Whether there is such a slice, whose start is not proven to be within the axis.
        iterations: The number of iterations of each loop.
        cut_short: Sizes of slices that may exceed the axis, and of the axis, by node and axis.
    """

    is_exact = False
    has_outer_cuts = False

    def __init__(self, graph: Graph, known: Mapping[tuple[int, int], Expr], *, proves: bool) -> None:
        """Start without sizes.

        Args:
            graph: The graph.
            known: Dimensions of Parameters and ReadValues, by node index and axis.
            proves: See the attribute.
        """
        self._graph, self._known = graph, known
        self.proves = proves
        self._equal = EqualSizes()
        self._shapes: dict[tuple[int, int], Vector] = {}
        self.iterations: dict[str, Expr] = {}
        self.cut_short: dict[tuple[int, int], tuple[Expr, Expr]] = {}

    @abstractmethod
    def integers(self, value: Value | None) -> Inferred:
        """Return the integers of a small tensor, flat, each ``None`` if unknown.

        Returns:
            ``None`` if the tensor is unknown or has more than ``LARGEST`` elements.
        """

    def shape(self, value: Value | None) -> Vector | None:
        """Return the size along each axis; ``None`` if the rank is unknown."""
        shape = None if value is None else self._shapes.get((value.node, value.port))
        return shape if shape is None or not self._equal.joins else tuple([self._equal.resolve(size) for size in shape])

    def content(self, value: Value | None) -> Vector | None:
        """Return the integers of ``value``, flat; ``None`` if over 16, or if any is unknown."""
        integers = self.integers(value)
        if integers is None or None in integers:
            return None
        return tuple(size for size in integers if size is not None)

    def _count(self, value: Value) -> int | None:
        """Return the number of elements of a vector."""
        shape = self.shape(value)
        size = shape[0].as_number if shape else 1 if shape == () else None
        return size if isinstance(size, int) else None

    def numbers(self, value: Value | None) -> numpy.ndarray | None:
        """Return the integers of a small tensor if all are known, i64, flat."""
        import numpy

        numbers = [size.as_number for size in self.content(value) or ()]
        return numpy.array(numbers, "int64") if numbers and None not in numbers else None
