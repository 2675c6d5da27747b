"""Show stages of work: live on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, TextIO

import click

from graphpass.printable import on_one_line, printable
from graphpass.progress import peak_memory

if TYPE_CHECKING:
    import rich.progress

    from graphpass.progress import Stage, Watcher

#: Seconds of a stage that gets a line of its own, and of work that is not drawn.
_LONG, _SHORT = 1.0, 0.3

#: Seconds between two lines on a stage that lasts.
_BEAT = 10.0

#: Columns of a terminal that has room for a bar.
_WIDE = 100


def watcher(stream: TextIO, *, verbose: bool) -> Watcher:
    """Return what shows stages on ``stream``.

    Args:
        stream: A terminal, a pipe or a file.
        verbose: Whether to keep a line of short stages, too.
    """
    lines = Lines(0.0 if verbose else _LONG)
    return lines if verbose or not can_draw(stream) else LiveLine(stream)


def can_draw(stream: TextIO) -> bool:
    """Report whether somebody looks at a stream, on a terminal that moves its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")


class Lines:
    """Prints a line for each long stage, at its end and every 10 s."""

    def __init__(self, least: float = _LONG) -> None:
        """Create a watcher.

        Args:
            least: Seconds of the shortest stage that gets a line.
        """
        self._least = least
        self._lines: dict[Stage, int] = {}

    def began(self, stage: Stage) -> None:
        """See `graphpass.progress.Watcher`."""

    def moved(self, stage: Stage) -> None:
        """Print a line, if the last one is old."""
        beat = int(stage.seconds / _BEAT)
        if beat > self._lines.get(stage, 0):
            self._lines[stage] = beat
            left = "" if stage.seconds_left is None else f"{stage.seconds_left:.0f} s left, "
            self._print(stage, f"{_counted(stage)}{_percent(stage)}, {left}")

    def ended(self, stage: Stage) -> None:
        """Print the line."""
        self._lines.pop(stage, None)
        if stage.seconds >= self._least:
            self._print(stage, f"{_counted(stage)}, " if stage.done else "")

    @staticmethod
    def _print(stage: Stage, counted: str) -> None:
        click.echo(f"{_described(stage, at=False)}: {counted}{stage.seconds:.1f} s{_memory()}", err=True)


class LiveLine:
    """Draws the work, how far it is, and the time left; leaves nothing behind.

    Work of 0.3 s is not drawn, so that short commands neither flicker nor import rich.
    """

    def __init__(self, stream: TextIO) -> None:
        """Create a watcher.

        Args:
            stream: The terminal.
        """
        self._stream = stream
        self._lock = threading.RLock()
        self._stages: dict[Stage, rich.progress.TaskID | None] = {}
        self._drawn: rich.progress.Progress | None = None
        self._timer: threading.Timer | None = None

    def began(self, stage: Stage) -> None:
        """Draw the stage, or wait for the time to draw."""
        with self._lock:
            self._stages[stage] = None
            if self._drawn is not None:
                self._add(self._drawn, stage)
            elif self._timer is None:
                self._timer = threading.Timer(_SHORT, self.draw)
                self._timer.daemon = True
                self._timer.start()

    def moved(self, stage: Stage) -> None:
        """Draw the new counts."""
        with self._lock:
            task = self._stages.get(stage)
            if self._drawn is not None and task is not None:
                self._drawn.update(
                    task,
                    description=_described(stage),
                    completed=stage.done,
                    total=stage.total or None,
                    counted=_counted(stage),
                    percent=_percent(stage),
                    memory=_memory().lstrip(", "),
                )

    def ended(self, stage: Stage) -> None:
        """Take the stage away, and the drawing with the last one."""
        with self._lock:
            task = self._stages.pop(stage)
            if self._drawn is not None and task is not None:
                self._drawn.remove_task(task)
            if self._stages:
                return
            timer, drawn, self._timer, self._drawn = self._timer, self._drawn, None, None
        if timer is not None:
            timer.cancel()
        if drawn is not None:
            drawn.stop()

    def draw(self) -> None:
        """Begin to draw the stages that last."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.table import Column

        with self._lock:
            if not self._stages:  # it ended meanwhile
                return
            counts = TextColumn("{task.fields[counted]}{task.fields[percent]}")
            self._drawn = Progress(
                TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold")),
                *([BarColumn(bar_width=20)] if Console(file=self._stream).width >= _WIDE else []),
                counts,
                TimeElapsedColumn(),
                TimeRemainingColumn(elapsed_when_finished=True),
                TextColumn("{task.fields[memory]}"),
                console=Console(file=self._stream),
                transient=True,
                redirect_stdout=False,  # results may go to another place than the terminal
            )
            for stage in self._stages:
                self._add(self._drawn, stage)
            self._drawn.start()

    def _add(self, drawn: rich.progress.Progress, stage: Stage) -> None:
        counts = {
            "total": stage.total or None,
            "completed": stage.done,
            "counted": _counted(stage),
            "percent": _percent(stage),
            "memory": _memory().lstrip(", "),
        }
        self._stages[stage] = drawn.add_task(_described(stage), **counts)  # type: ignore[arg-type]


def _described(stage: Stage, *, at: bool = True) -> str:
    return printable(on_one_line(f"{stage.text} {stage.at}".rstrip() if at else stage.text))


def _percent(stage: Stage) -> str:
    return "" if stage.share is None else f" ({stage.share:.0%})"


def _memory() -> str:
    """Return the largest memory until now, after a comma."""
    from graphpass.reports.text import in_bytes

    return f", {in_bytes(peak)}" if (peak := peak_memory()) else ""


def _counted(stage: Stage) -> str:
    from graphpass.reports.text import in_bytes

    if not stage.unit:
        return ""
    words, unit = (in_bytes, "") if stage.unit == "bytes" else (str, f" {stage.unit}")
    done = "" if stage.done >= stage.total else f"{words(stage.done)} of "
    return f"{done}{words(max(stage.done, stage.total))}{unit}"
