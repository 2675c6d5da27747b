"""Rotary tables as formulas: cosines and sines of positions times the other model's frequencies."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.constants import Table
from graphpass.analysis.symbolic.expressions import Expr, number
from graphpass.dialects.rounding import MOVES_BY

#: Relative error of an angle in f32.
ROUNDING = 4e-7

#: Absolute error of a cosine in f32.
_ABSOLUTE = 2e-6

_FUNCTIONS = {"cos": numpy.cos, "sin": numpy.sin}


class AngleTables:
    """Frequencies in formulas of both models, and the rotary tables that equal such a formula.

    Attributes:
        rows: Numbers of rows of these tables; positions are compared up to the least.
    """

    def __init__(self, rounded: Collection[str] = ()) -> None:
        """Create an empty set of frequencies.

        Args:
            rounded: 16-bit types to which tables may be rounded.
        """
        self._rounding: dict[str, float] = {half: 2.0**moved for half, moved in MOVES_BY.items() if half in rounded}
        self.rows: set[int] = set()
        self._frequencies: dict[tuple[Any, float], None] = {}
        self._amplitudes: dict[float, None] = {1.0: None}
        self._known: dict[tuple[str, int], tuple[str, float, Any, float] | None] = {}

    @property
    def columns(self) -> set[int]:
        """Return the possible numbers of columns of a table: one column for each frequency."""
        return {table.elements.size for table, _ in self._frequencies}

    def note(self, angle: Expr) -> None:
        """Record the frequencies of an angle ``factor * position * frequencies[channel]``."""
        if angle.op != "times" or len(angle.args) != 3:
            return
        factor = angle.args[0].as_number
        for part in angle.args[1:]:
            if part.op == "read" and isinstance(part.args[0], Table) and len(part.args) == 2 and part.sort == "real":
                self._frequencies[part.args[0], float(factor)] = None

    def element(
        self, elements: numpy.ndarray[Any, Any], element_type: str, digest: str, index: tuple[Expr, ...]
    ) -> Expr | None:
        """Return an element of a table as ``amplitude * cos(angle)`` or ``sin``; ``None`` for other tables.

        Args:
            elements: The table, ``[positions, channels]``.
            element_type: The type in the model.
            digest: Hash of the table.
            index: Position and channel of the element.
        """
        if elements.ndim != 2 or elements.dtype.kind != "f" or elements.shape[0] < 2:
            return None
        key = digest, len(self._frequencies)
        if key not in self._known:
            self._known[key] = self._recognized(elements.astype(numpy.float64), self._rounding.get(element_type, 0.0))
        known = self._known[key]
        if known is None:
            return None
        function, amplitude, table, factor = known
        self.rows.add(elements.shape[0])
        frequency = ex.read(table, (index[1],), "real")
        angle = ex.multiply(number(factor), ex.multiply(index[0], frequency))
        return ex.multiply(number(amplitude), ex.apply(function, (angle,)))

    def _recognized(self, elements: numpy.ndarray[Any, Any], rounding: float) -> tuple[str, float, Any, float] | None:
        places = numpy.arange(elements.shape[0], dtype=numpy.float64)[:, None]
        for table, factor in self._frequencies:
            frequencies = numpy.asarray(table.elements, numpy.float64).reshape(1, -1)
            if frequencies.shape[1] != elements.shape[1]:
                continue
            angles = places * frequencies * factor
            allowed = _ABSOLUTE + ROUNDING * numpy.abs(angles)
            for name, function in _FUNCTIONS.items():
                expected = function(angles)
                amplitudes = {float(elements[0, 0]): None} if name == "cos" else self._amplitudes
                for amplitude in amplitudes:
                    limit = abs(amplitude) * (allowed + rounding * numpy.abs(expected))
                    if amplitude and (numpy.abs(elements - amplitude * expected) <= limit).all():
                        self._amplitudes[amplitude] = None
                        return name, amplitude, table, factor
        return None
