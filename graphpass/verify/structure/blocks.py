"""Constants of one model in terms of the other's: stacked, concatenated, transposed or interleaved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import ZERO, Expr, number
from graphpass.analysis.symbolic.places import digits
from graphpass.ir.graph import Graph, Value
from graphpass.ir.values import REALS

if TYPE_CHECKING:
    from graphpass.analysis.symbolic.elements import Index
    from graphpass.verify.structure.definition import KnownWeight
    from graphpass.verify.structure.weights import WeightDigests

    Matrix = numpy.ndarray[Any, Any]

#: Minimum number of elements of a row that is compared.
_SHORTEST = 4

#: Maximum number of blocks of a constant; others are not decomposed.
_MOST_BLOCKS = 16

#: Maximum number of elements of a row that its hash reads, and of rows of one hash; rows of zeros may be many.
_HASHED, _MOST_ALIKE = 64, 64


@dataclass(frozen=True, slots=True)
class _Source:
    """A constant matrix of the other model, or one matrix of a stack, perhaps transposed."""

    value: Value
    lead: int | None
    is_swapped: bool
    rows: Matrix

    def place(self, lead: Expr | None, row: Expr, column: Expr) -> Index:
        """Return an element's index in the constant; ``lead`` replaces the index in the stack."""
        own = (column, row) if self.is_swapped else (row, column)
        axes = [place for place, size in enumerate(self.value.shape or ()) if size != 1]
        indices = dict(zip(reversed(axes), reversed(own), strict=False))
        if self.lead is not None:
            indices[axes[0]] = number(self.lead) if lead is None else lead
        return tuple(indices.get(axis, ZERO) for axis in range(self.value.rank or 0))


@dataclass(frozen=True, slots=True)
class _Block:
    """Consecutive rows ``[first, first + count)`` of a source."""

    source: _Source
    first: int
    count: int

    @property
    def key(self) -> tuple[object, ...]:
        """Return all fields except the index in the stack."""
        return self.source.value, self.source.is_swapped, self.first, self.count


@dataclass(frozen=True, slots=True)
class _Made:
    """A matrix composed of blocks.

    Attributes:
        blocks: Concatenated blocks of rows; with ``is_interleaved``, one block of even and one of odd rows.
        is_swapped: Whether the matrix is the transpose of these rows.
        is_interleaved: Whether rows of two blocks alternate.
    """

    blocks: tuple[_Block, ...]
    is_swapped: bool = False
    is_interleaved: bool = False

    @property
    def leads(self) -> set[int | None]:
        """Return the indices in a stack of the blocks' sources."""
        return {block.source.lead for block in self.blocks}

    def alike(self, other: _Made) -> bool:
        """Return whether both have equal blocks, apart from the index in the stack."""
        keys = [(made.is_swapped, made.is_interleaved, *(block.key for block in made.blocks)) for made in (self, other)]
        return keys[0] == keys[1]


class ConstantBlocks:
    """The constants of one model, searched for rows of another model's constants.

    Candidate rows are found by a hash of some elements, then compared in full.
    """

    def __init__(
        self,
        graph: Graph,
        element: Callable[[Value, Index], Expr],
        weights: WeightDigests,
        stored: Callable[[Matrix], Matrix] | None = None,
    ) -> None:
        """Prepare the search; constants are read on first use.

        Args:
            graph: The graph with the constants.
            element: Returns an element of a constant at an index.
            weights: Digests of both models' constants.
            stored: Rounds an f32 matrix as the other model stores it; unchanged by default.
        """
        self._graph, self._element, self._weights = graph, element, weights
        self._stored = stored
        self._rows: dict[int, dict[int, list[tuple[_Source, int]]]] = {}
        self._known: dict[int, list[_Made] | None] = {}

    def element(self, graph: Graph, value: Value, index: Index) -> Expr | None:
        """Return an element of ``value`` in terms of this model's constants.

        Args:
            graph: The other model's graph.
            value: A constant with two or three axes larger than 1.
            index: Index of the element.

        Returns:
            ``None`` if ``value`` is not composed of this model's constants.
        """
        axes = [place for place, size in enumerate(value.shape or ()) if size != 1]
        if not 2 <= len(axes) <= 3 or value.element_type not in REALS:
            return None
        if value.node not in self._known:
            is_whole = self._stored is None and (
                self._weights.is_shared(graph, value) or self._weights.of(graph, value) in self._whole
            )
            constant = None if is_whole else graph.constant(value, 1 << 62)
            self._known[value.node] = None if constant is None else self._made(_plain(constant))
        pieces = self._known[value.node]
        if pieces is None:
            return None
        own = [index[axis] for axis in axes]
        lead = own[0] if len(own) == 3 else ZERO
        if all(made.leads == {place} and made.alike(pieces[0]) for place, made in enumerate(pieces)):
            return self._of_matrix(pieces[0], own[-2], own[-1], lead)
        result = self._of_matrix(pieces[-1], own[-2], own[-1])
        for place in reversed(range(len(pieces) - 1)):
            result = ex.choose(
                ex.at_most(lead, number(place)), self._of_matrix(pieces[place], own[-2], own[-1]), result
            )
        return result

    @cached_property
    def _whole(self) -> frozenset[KnownWeight | None]:
        nodes = self._graph.of_op("Constant")
        return frozenset(self._weights.of(self._graph, node.outputs[0]) for node in nodes)

    def _of_matrix(self, made: _Made, row: Expr, column: Expr, lead: Expr | None = None) -> Expr:
        row, column = (column, row) if made.is_swapped else (row, column)
        if made.is_interleaved:
            half, parity = digits(row, number(2))
            left, right = (self._read(block, half, column, lead) for block in made.blocks)
            return ex.choose(ex.at_most(parity, ZERO), left, right)
        end = sum(block.count for block in made.blocks)
        result: Expr | None = None
        for block in reversed(made.blocks):
            start = end - block.count
            part = self._read(block, ex.subtract(row, number(start)), column, lead)
            result = part if result is None else ex.choose(ex.less(row, number(end)), part, result)
            end = start
        assert result is not None
        return result

    def _read(self, block: _Block, row: Expr, column: Expr, lead: Expr | None) -> Expr:
        place = block.source.place(lead, ex.add(row, number(block.first)), column)
        return self._element(block.source.value, place)

    def _made(self, whole: Matrix) -> list[_Made] | None:
        """Return the blocks of each matrix of a stack; ``None`` if any has none."""
        blocks = []
        for matrix in whole if whole.ndim == 3 else [whole]:
            made = self._rows_made(matrix) or self._rows_made(matrix.T, is_swapped=True)
            if made is None:
                return None
            blocks.append(made)
        return blocks

    def _rows_made(self, matrix: Matrix, *, is_swapped: bool = False) -> _Made | None:
        whole = self._runs(matrix)
        if whole is not None:
            return _Made(whole, is_swapped)
        halves = [self._runs(matrix[start::2]) for start in (0, 1)]
        blocks = [half[0] for half in halves if half is not None and len(half) == 1]
        return (
            _Made(tuple(blocks), is_swapped, is_interleaved=True) if len(blocks) == 2 and len(matrix) % 2 == 0 else None
        )

    def _runs(self, matrix: Matrix) -> tuple[_Block, ...] | None:
        """Return the blocks whose concatenation is ``matrix``; ``None`` without any."""
        if matrix.shape[1] < _SHORTEST:
            return None
        keys, rows = _hashes(matrix), self._index(matrix.shape[1])
        place, blocks = 0, list[_Block]()
        while place < len(matrix):
            runs = [
                _Block(source, first, _common(matrix[place:], source.rows[first:]))
                for source, first in rows.get(int(keys[place]), ())
            ]
            best = max(runs, key=lambda block: block.count, default=None)
            if best is None or not best.count or len(blocks) == _MOST_BLOCKS:
                return None
            blocks.append(best)
            place += best.count
        return tuple(blocks)

    def _index(self, columns: int) -> dict[int, list[tuple[_Source, int]]]:
        """Return the rows of ``columns`` elements by hash."""
        if columns not in self._rows:
            rows = self._rows[columns] = {}
            for source in self._sources(columns):
                for row, key in enumerate(_hashes(source.rows)):
                    alike = rows.setdefault(int(key), [])
                    if len(alike) < _MOST_ALIKE:
                        alike.append((source, row))
        return self._rows[columns]

    def _sources(self, columns: int) -> Iterator[_Source]:
        """Yield the matrices with rows of ``columns`` elements."""
        for node in self._graph.of_op("Constant"):
            value = node.outputs[0]
            sizes = [size for size in value.shape or () if size != 1]
            if (
                value.element_type not in REALS
                or not 1 <= len(sizes) <= 3
                or columns not in sizes[-2:]
                or self._weights.is_shared(self._graph, value)
            ):
                continue
            constant = self._graph.constant(value, 1 << 62)
            if constant is None:
                continue
            constant = _plain(constant) if self._stored is None else self._stored(_plain(constant))
            for lead, matrix in enumerate(
                constant.reshape(-1, *constant.shape[-2:]) if constant.ndim > 1 else [constant[None]]
            ):
                for is_swapped, rows in enumerate((matrix, matrix.T)):
                    if rows.shape[1] == columns:
                        yield _Source(value, lead if constant.ndim == 3 else None, bool(is_swapped), rows)


def _plain(matrix: Matrix) -> Matrix:
    """Return a matrix without axes of size 1; 16-bit types are converted to f32."""
    matrix = matrix.astype(numpy.float32) if matrix.dtype.itemsize < 4 else matrix
    return numpy.ascontiguousarray(matrix).reshape([size for size in matrix.shape if size != 1])


def _hashes(matrix: Matrix) -> Matrix:
    """Return a hash of the bits of some elements of each row, as u64."""
    places = numpy.linspace(0, matrix.shape[1] - 1, min(matrix.shape[1], _HASHED)).astype(int)
    words = numpy.ascontiguousarray(matrix[:, places]).view(numpy.uint32).astype(numpy.uint64)
    factors = numpy.arange(1, 2 * words.shape[1], 2, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    sums: Matrix = ((words + 1) * factors).sum(axis=1, dtype=numpy.uint64)
    return sums


def _common(left: Matrix, right: Matrix) -> int:
    """Return the number of equal leading rows."""
    count, equal, piece = min(len(left), len(right)), 0, 1
    while equal < count:
        rows = slice(equal, min(equal + piece, count))
        differs = (left[rows] != right[rows]).any(axis=1)
        if differs.any():
            return equal + int(differs.argmax())
        equal, piece = rows.stop, 2 * piece
    return count
