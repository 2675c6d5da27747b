"""The pass `tabulate-angles`."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy

from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.caches.step_lengths import POSITIONS
from graphpass.analysis.equations.activations import computed_by_positions
from graphpass.analysis.equations.evaluation import SampledStep, evaluation_at
from graphpass.analysis.equations.rotation import POSITION, QUERY, ROW, at_position, restarts
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Elements, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO
from graphpass.analysis.symbolic.rounding import Array
from graphpass.analysis.symbolic.step import BATCH, LENGTH
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.graph import Value
from graphpass.ir.miss import MissError
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.writer import Handle


@dataclass(frozen=True)
class TabulateAngles(Pass[Model]):
    """Read cosines, sines and other functions of positions from tables.

    Qualcomm's HTP computes in f16, which rounds an angle at position 1000 by up to 0.25, at position 4000 by up to 1.
    The error of an f16 table is 2.4e-4 at any position. NPUW does the same for OpenVINO IR
    (``npuw/partitioning/patterns/pre_compute.cpp``).

    Values that also depend on other positions are still computed, with a note: in LongRoPE they depend on the largest
    position.

    Options:
        positions: Number of positions in tables.

    Shapes:
        position_ids i64 ``[batch, length]``, each below ``positions``

    Before:
        position_ids -> Multiply(., frequencies) -> Concat -> Cos -> Multiply(query, .)
    After:
        position_ids -> Gather(table [positions, head_dim / 2]) -> Concat -> Multiply(query, .)
    """

    name = "tabulate-angles"

    positions: int = 2048

    def run(self, model: Model) -> Done | Skipped:
        positions = model.graph.parameters.get(POSITIONS)
        if positions is None or positions.rank != 2:
            return Skipped("the model has no input position_ids [batch, length]: run expose-position-ids")
        elements, rewriter, notes = model.analysis(find_elements), model.rewriter(), []
        sampled = numpy.arange(self.positions)[None]
        evaluation = evaluation_at(model, SampledStep(1, 0, self.positions), {positions: sampled})
        tables = _Tables(rewriter, positions)
        for value in computed_by_positions(model):
            try:
                axes = _axes(elements, value)
                numbers = evaluation.of(value)
            except (MissError, UnknownError) as error:
                notes.append(f"{value.name} is still computed: {error}")
                continue
            rewriter.replace(value, tables.rows(axes, numbers, value.element_type))
        rewriter.finish()
        return Done({"tables": tables.count}, tuple(notes))


@dataclass(frozen=True, slots=True)
class _Axes:
    """Axes of a value that is a function of positions.

    Attributes:
        batch: Axis of rows.
        length: Axis of new positions.
        channels: Other axes of size larger than 1.
        ones: Axes of size 1.
    """

    batch: int
    length: int
    channels: tuple[int, ...]
    ones: tuple[int, ...]


def _axes(elements: Elements, value: Value) -> _Axes:
    """Return the axes of a value with elements that depend only on their position.

    Raises:
        UnknownError: An element depends on other positions or on lengths, or has no symbolic form.
    """
    sizes = elements.shape(value)
    if BATCH not in sizes or LENGTH not in sizes:
        raise UnknownError("it has no axes of batch and length")
    batch, length = sizes.index(BATCH), sizes.index(LENGTH)
    ones = tuple(axis for axis, size in enumerate(sizes) if size is ONE)
    channels = tuple(axis for axis in range(len(sizes)) if axis not in {batch, length, *ones})
    if not all(isinstance(sizes[axis].as_number, int) for axis in channels):
        raise UnknownError("a dimension besides batch and length is not constant")
    indices = {axis: ex.index(f"channel {axis}", sizes[axis]) for axis in channels} | {batch: ROW, length: QUERY}
    element = elements.of(value, tuple(indices.get(axis, ZERO) for axis in range(len(sizes))))
    if restarts(element):
        raise UnknownError("it counts positions from the first token of each step")
    for part in ex.walk(at_position(element)):
        if part in elements.misses:
            raise UnknownError(str(elements.misses[part]))
        if part.op in {"length", "running_sum"} and part is not POSITION:
            raise UnknownError("it depends on other positions of the step")
    return _Axes(batch, length, channels, ones)


class _Tables:
    """Writes each table once.

    Attributes:
        count: Number of tables.
    """

    def __init__(self, rewriter: Rewriter, positions: Value) -> None:
        self.count = 0
        self._write, self._positions = rewriter.under("angles"), positions
        self._made: dict[Hashable, Handle] = {}

    def rows(self, axes: _Axes, numbers: Array, element_type: str) -> Handle:
        """Return the rows of a table at ``position_ids``, in the layout ``axes``.

        Args:
            axes: The axes of ``numbers``, and of the result.
            numbers: The value for a batch of 1 with positions 0, 1, 2 and so on.
            element_type: Element type of the result.
        """
        order = (axes.length, *axes.channels, axes.batch, *axes.ones)
        table = numbers.transpose(order).reshape([numbers.shape[axis] for axis in (axes.length, *axes.channels)])
        table, doubling = _halved(table)
        content = table.shape, element_type, table.tobytes()
        if (axes, doubling, content) not in self._made:
            rows = self._looked_up(content, table, element_type)
            self._made[axes, doubling, content] = self._laid_out(axes, rows, doubling)
        return self._made[axes, doubling, content]

    def _looked_up(self, content: Hashable, table: Array, element_type: str) -> Handle:
        if content not in self._made:
            self.count += 1
            constant = self._write.constant(table, "table", element_type)
            self._made[content] = self._write.op("Gather", constant, self._positions, axis=0, label="rows")
        return self._made[content]

    def _laid_out(self, axes: _Axes, rows: Handle, doubling: _Doubling) -> Handle:
        write, layout = self._write, (axes.batch, axes.length, *axes.channels)
        if doubling == "halves":
            rows = write.op("Concat", rows, rows, axis=len(layout) - 1, label="doubled")
        if doubling == "pairs":
            single = write.op("Unsqueeze", rows, axes=[len(layout)], label="single")
            pairs = write.op("Concat", single, single, axis=len(layout), label="pairs")
            rows = write.op("Reshape", pairs, [0] * (len(layout) - 1) + [-1], label="doubled")
        if list(layout) != sorted(layout):
            rows = write.op("Transpose", rows, order=[layout.index(axis) for axis in sorted(layout)], label="ordered")
        return write.op("Unsqueeze", rows, axes=list(axes.ones)) if axes.ones else rows


_Doubling: TypeAlias = Literal["", "halves", "pairs"]


def _halved(table: Array) -> tuple[Array, _Doubling]:
    """Return half of a table with duplicated elements, and the layout of the copies."""
    width = table.shape[-1]
    if table.ndim > 1 and width % 2 == 0:
        if numpy.array_equal(table[..., : width // 2], table[..., width // 2 :]):
            return table[..., : width // 2], "halves"
        if numpy.array_equal(table[..., ::2], table[..., 1::2]):
            return table[..., ::2], "pairs"
    return table, ""
