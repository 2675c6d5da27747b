"""Follow the cells of a matrix, and the stages of each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from graphpass.progress import Stage, peak_memory

from .cells import Cell, CellResult


class Progress:
    """Observes a run; every hook does nothing by default."""

    def begin(self, cells: Sequence[Cell]) -> None:
        """Take the cells, before any starts."""

    def started(self, cell: Cell) -> None:
        """Take a cell that starts."""

    def moved(self, cell: Cell, at: Position) -> None:
        """Take the position of a running cell; called from any thread."""

    def ended(self, result: CellResult) -> None:
        """Take a cell's result."""

    def end(self) -> None:
        """Take note that no cell follows."""


@dataclass(frozen=True, slots=True)
class Position:
    """Locates a cell in its work; plain data that processes exchange.

    Attributes:
        stage: The innermost stage.
        whole: The outermost one.
        memory: Bytes that the process had at most in memory; 0 if unknown.
    """

    stage: Stage
    whole: Stage
    memory: int


class Reporter:
    """Reports the innermost stage of a cell from its process, as a `graphpass.progress.Watcher`."""

    def __init__(self, report: Callable[[Position], None], interval: float = 0.2) -> None:
        """Create a watcher.

        Args:
            report: Takes positions; an `OSError` means that the reader has ended.
            interval: Seconds between two reports on one stage.
        """
        self._report, self._interval = report, interval
        self._stages: list[Stage] = []
        self._at, self._next = "", 0.0

    def began(self, stage: Stage) -> None:
        """Report the stage."""
        self._stages.append(stage)
        self._send(stage)

    def moved(self, stage: Stage) -> None:
        """Report a new item at once, and new counts once an interval."""
        if stage is self._stages[-1] and (stage.at != self._at or time.monotonic() >= self._next):
            self._send(stage)

    def ended(self, stage: Stage) -> None:
        """Report the stage around it."""
        self._stages.remove(stage)
        if self._stages:
            self._send(self._stages[-1])

    def _send(self, stage: Stage) -> None:
        self._at, self._next = stage.at, time.monotonic() + self._interval
        with contextlib.suppress(OSError):
            self._report(Position(replace(stage), replace(self._stages[0]), peak_memory()))
