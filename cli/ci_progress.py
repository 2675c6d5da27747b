"""Show the progress of a matrix: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from graphpass.matrix.cells import Cell, CellResult
from graphpass.matrix.progress import Position, Progress
from graphpass.matrix.reports.plain import detail_of
from graphpass.printable import on_one_line, printable
from graphpass.progress import STAGES, Stage

from .console import Console
from .watch import WIDE, Beat, counts, described, in_memory, joined, time_left

if TYPE_CHECKING:
    from rich.progress import TaskID

_STYLES = {"failed": "red", "converted": "green", "up to date": "blue", "cancelled": "yellow"}


class PlainLines(Progress):
    """Prints a line at the end of each cell."""

    def __init__(self, cells: int, console: Console) -> None:
        self._cells = cells
        self._ended = 0
        self._console = console
        self._beats: dict[str, Beat] = {}

    def started(self, cell: Cell) -> None:
        """Print a line if verbose."""
        self._beats[cell.id] = Beat()
        if self._console.verbose:
            self._console.note(f"{cell.id} started")

    def moved(self, cell: Cell, at: Position) -> None:
        """See `Progress.moved`; prints the stage of the cell, at most every 10 s."""
        if (beat := self._beats[cell.id]).is_due():
            self._console.note(f"{cell.id} {_in_words(at, time_left(at.stage), f'{beat.seconds:.0f} s')}")

    def ended(self, result: CellResult) -> None:
        """Print the result of the cell."""
        self._ended += 1
        width = len(str(self._cells))
        self._console.note(f"[{self._ended:{width}}/{self._cells}] {progress_line(result)}")


class LiveTable(Progress):
    """Shows the running cells with stages and times, below the results of ended cells."""

    def __init__(self, cells: int, stream: TextIO) -> None:
        from rich.console import Console as Terminal
        from rich.progress import (
            BarColumn,
            Progress as Bars,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.table import Column

        terminal = Terminal(file=stream)
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold")),
            *([BarColumn(bar_width=20)] if terminal.width >= WIDE else []),
            TextColumn("{task.fields[stage]}", markup=False, table_column=Column(overflow="fold")),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=terminal,
            transient=True,
        )
        self._cells = Stage("all", "cells", cells)
        self._all = self._bars.add_task("all", total=cells, stage=counts(self._cells))
        self._tasks: dict[str, TaskID] = {}

    def begin(self, cells: Sequence[Cell]) -> None:  # noqa: ARG002
        """Show the table."""
        self._bars.start()

    def started(self, cell: Cell) -> None:
        """Add a row for the cell."""
        self._tasks[cell.id] = self._bars.add_task(printable(on_one_line(cell.id)), total=None, stage="")

    def moved(self, cell: Cell, at: Position) -> None:
        """See `Progress.moved`; shows the stage of the cell."""
        if (task := self._tasks.get(cell.id)) is not None:
            self._bars.update(task, stage=_in_words(at, time_left(at.stage)))

    def ended(self, result: CellResult) -> None:
        """Remove the cell's row, and print its result above the table."""
        if (task := self._tasks.pop(result.cell.id, None)) is not None:
            self._bars.remove_task(task)
        line = progress_line(result)
        self._bars.console.print(line, style=_STYLES[result.state], markup=False, highlight=False, soft_wrap=True)
        self._cells.done += 1
        self._bars.update(self._all, completed=self._cells.done, stage=counts(self._cells))

    def end(self) -> None:
        """Remove the table."""
        self._bars.stop()


def _in_words(at: Position, *facts: str) -> str:
    """Return ``4 of 7 stages (57%), verifying: 12 of 43 steps (28%), 612 MB``, with ``facts`` before the memory."""
    current = f"{described(at.stage)}: {joined(counts(at.stage), *facts, in_memory(at.memory))}"
    return joined(counts(at.whole) if at.whole.unit == STAGES else "", current)


def progress_line(result: CellResult) -> str:
    """Return ``llama:npu converted (4.2 s)``, with the error if the cell failed."""
    line = f"{result.cell.id} {result.state}"
    if result.state == "failed":
        line += f": {detail_of(result)}"
    line = printable(on_one_line(line))
    return line if result.state == "up to date" else f"{line} ({result.seconds:.1f} s)"
