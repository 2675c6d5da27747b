"""Progress of the cells of a matrix, and of the stages of each cell."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from graphpass.progress import Stage, peak_memory

from .cells import Cell, CellResult


class Progress:
    """Observer of a run; by default each hook does nothing."""

    def begin(self, cells: Sequence[Cell]) -> None:
        """Handle the start of the run, before a cell starts."""

    def started(self, cell: Cell) -> None:
        """Handle the start of a cell."""

    def moved(self, cell: Cell, at: Position) -> None:
        """Handle a new position of a running cell; called from any thread.

        Args:
            cell: The running cell.
            at: Its stages and peak memory now.
        """

    def ended(self, result: CellResult) -> None:
        """Handle the result of a cell."""

    def end(self) -> None:
        """Handle the end of the run."""


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a cell in its stages, which is pickled between processes.

    Attributes:
        stage: The innermost stage.
        whole: The outermost stage.
        memory: Peak memory of the process in bytes; 0 if unknown.
    """

    stage: Stage
    whole: Stage
    memory: int


class Reporter:
    """A `graphpass.progress.Watcher` that reports a cell's position from its process."""

    def __init__(self, report: Callable[[Position], None], interval: float = 0.2) -> None:
        """Create a watcher.

        Args:
            report: Receives positions; its `OSError` is ignored, since the reader may have ended.
            interval: Seconds between two reports about one stage.
        """
        self._report, self._interval = report, interval
        self._stages: list[Stage] = []
        self._at, self._next = "", 0.0

    def began(self, stage: Stage) -> None:
        """Report the stage."""
        self._stages.append(stage)
        self._send(stage)

    def moved(self, stage: Stage) -> None:
        """Report a new item immediately, and new counts once per interval."""
        if stage is self._stages[-1] and (stage.at != self._at or time.monotonic() >= self._next):
            self._send(stage)

    def ended(self, stage: Stage) -> None:
        """Report the enclosing stage."""
        self._stages.remove(stage)
        if self._stages:
            self._send(self._stages[-1])

    def _send(self, stage: Stage) -> None:
        self._at, self._next = stage.at, time.monotonic() + self._interval
        with contextlib.suppress(OSError):
            self._report(Position(replace(stage), replace(self._stages[0]), peak_memory()))
