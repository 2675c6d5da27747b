"""Elements of large constants, identified by value across both models."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from graphpass.analysis.symbolic.constants import constant_element, element_of, read_numbers
from graphpass.analysis.symbolic.elements import UnknownError
from graphpass.analysis.symbolic.expressions import Expr, number, read
from graphpass.analysis.symbolic.places import regroup
from graphpass.ir.graph import Graph, Value
from graphpass.ir.values import INTEGERS, REALS, STORED
from graphpass.verify.structure.angles import AngleTables
from graphpass.verify.structure.blocks import ConstantBlocks
from graphpass.verify.structure.rounded_constants import RoundedConstants
from graphpass.verify.structure.weights import SMALL, WeightDigests, unpacked_constant

if TYPE_CHECKING:
    from graphpass.analysis.symbolic.elements import Index
    from graphpass.dialects.rounding import Half
    from graphpass.verify.structure.definition import KnownWeight

#: Elements of the largest rotary table.
_LARGEST_TABLE = 1 << 26


class Constants:
    """Elements of large constants as expressions."""

    def __init__(
        self,
        angles: AngleTables,
        weights: WeightDigests,
        blocks: ConstantBlocks | None = None,
        rounded: RoundedConstants | None = None,
    ) -> None:
        """Store the sources of constants.

        Args:
            angles: Frequencies that positions are multiplied by, for rotary tables.
            weights: Digests of both models' weights.
            blocks: Constants of the other model, of which constants may be composed.
            rounded: Constants of the other model, rounded to 16 bits.
        """
        self._angles, self._weights, self._blocks, self._rounded = angles, weights, blocks, rounded

    def element(self, graph: Graph, value: Value, index: Index) -> Expr | None:
        """Return an element of a constant; ``None`` for booleans, small or unreadable constants.

        Args:
            graph: Graph of the constant.
            value: The constant.
            index: Index of the element, one expression an axis.
        """
        sizes = [size for size in value.shape or () if isinstance(size, int)]
        if value.shape is None or len(sizes) != len(value.shape) or value.element_type == "boolean":
            return None
        is_table = len(sizes) == 2 and value.element_type in REALS
        is_small = math.prod(sizes) <= SMALL and read_numbers(graph, value) is not None
        wide = None if self._rounded is None else self._rounded.element(graph, value, index)
        if wide is not None:
            return wide
        made = (
            None if self._blocks is None or (is_small and not is_table) else self._blocks.element(graph, value, index)
        )
        if made is not None:
            return made
        if is_small and not is_table:
            return None
        weight = self._weights.of(graph, value)
        if weight is None:
            return None
        if is_table and sizes[1] in self._angles.columns:
            constant = graph.constant(value, _LARGEST_TABLE)
            angle = (
                None if constant is None else self._angles.element(constant, value.element_type, weight.digest, index)
            )
            if angle is not None:
                return angle
        if is_small:
            return None
        if value.element_type in STORED:
            return self._compressed(weight, tuple(sizes), index)
        places = tuple(place for place, size in zip(index, sizes, strict=True) if size != 1)
        return read(weight, places, "int" if value.element_type in INTEGERS else "real")

    def _compressed(self, weight: KnownWeight, sizes: tuple[int, ...], index: Index) -> Expr:
        """Return an element of a compressed weight.

        It is read at its index in the first constant with this content, which may have another shape.
        """
        first = self._weights.shape_of(weight, sizes)
        places = index if first == sizes else regroup(index, tuple(map(number, sizes)), tuple(map(number, first)))
        return read(weight, tuple(place for place, size in zip(places, first, strict=True) if size != 1), "int")

    def packed(self, graph: Graph, value: Value, bits: int, shape: tuple[int, ...], index: Index) -> Expr:
        """Return an unsigned integer that is stored in the bytes of a constant.

        Args:
            graph: Graph of the constant.
            value: The constant, u8.
            bits: Bits of an integer: 4, the first of two in the lower bits of a byte, or 8.
            shape: Shape of the integers.
            index: Index of the integer, one expression an axis.

        Raises:
            UnknownError: The bytes cannot be read, or are not those of the shape.
        """
        element_type = f"u{bits}"
        if math.prod(shape) <= SMALL:
            numbers = unpacked_constant(graph, value, element_type, shape)
            element = None if numbers is None else element_of(numbers, index)
        else:
            weight = self._weights.of_packed(graph, value, element_type, shape)
            element = None if weight is None else self._compressed(weight, shape, index)
        if element is None:
            raise UnknownError(f"the integers in {value.name} cannot be read")
        return element

    def by_blocks(self, other: Graph, half: Half | None = None) -> Constants:
        """Return elements in terms of the constants of another graph.

        Args:
            other: Graph whose constants other constants are composed of.
            half: Type of 16 bits, to which constants of ``other`` may be rounded; ``None`` if they are not.
        """

        def element(value: Value, index: Index) -> Expr:
            expr = self.element(other, value, index) or constant_element(other, value, index)
            if expr is None:
                raise UnknownError("the elements of the constant cannot be read")
            return expr

        rounded = None if half is None else RoundedConstants(half, other, element, self._weights)
        return Constants(self._angles, self._weights, ConstantBlocks(other, element, self._weights), rounded)
