"""Show the progress of a matrix: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from graphpass.matrix.cells import Cell, CellResult
from graphpass.matrix.reports.plain import detail_of
from graphpass.matrix.run import Progress
from graphpass.printable import on_one_line, printable

from .console import Console

if TYPE_CHECKING:
    from rich.progress import TaskID

_STYLES = {"failed": "red", "converted": "green", "up to date": "blue", "cancelled": "yellow"}


class PlainLines(Progress):
    """Prints a line for each cell that ends."""

    def __init__(self, cells: int, console: Console) -> None:
        self._cells = cells
        self._ended = 0
        self._console = console

    def started(self, cell: Cell) -> None:
        """Print a line, if verbose."""
        if self._console.verbose:
            self._console.note(f"{cell.id} started")

    def ended(self, result: CellResult) -> None:
        """Print a line."""
        self._ended += 1
        width = len(str(self._cells))
        self._console.note(f"[{self._ended:{width}}/{self._cells}] {in_one_line(result)}")


class LiveTable(Progress):
    """Shows cells that run with their times below those that ended."""

    def __init__(self, cells: int, stream: TextIO) -> None:
        from rich.console import Console as Terminal
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress as Bars,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        self._bars = Bars(*columns, TimeElapsedColumn(), console=Terminal(file=stream), transient=True)
        self._all = self._bars.add_task("cells", total=cells)
        self._tasks: dict[str, TaskID] = {}

    def begin(self, cells: Sequence[Cell]) -> None:  # noqa: ARG002
        """Show the table."""
        self._bars.start()

    def started(self, cell: Cell) -> None:
        """Add a row."""
        self._tasks[cell.id] = self._bars.add_task(printable(on_one_line(cell.id)), total=1)

    def ended(self, result: CellResult) -> None:
        """Move a row above the table."""
        if (task := self._tasks.pop(result.cell.id, None)) is not None:
            self._bars.remove_task(task)
        line = in_one_line(result)
        self._bars.console.print(line, style=_STYLES[result.state], markup=False, highlight=False, soft_wrap=True)
        self._bars.advance(self._all)

    def end(self) -> None:
        """Remove the table."""
        self._bars.stop()


def in_one_line(result: CellResult) -> str:
    """Return ``llama:npu converted in 4.2 s``, and the error if there is one."""
    words = f"{result.cell.id} {result.state}"
    if result.state == "failed":
        words += f": {detail_of(result)}"
    words = printable(on_one_line(words))
    return words if result.state == "up to date" else f"{words} ({result.seconds:.1f} s)"
