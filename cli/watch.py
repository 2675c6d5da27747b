"""Display of stages: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, TextIO

import click

from graphpass.printable import on_one_line, printable
from graphpass.progress import STAGES, peak_memory

if TYPE_CHECKING:
    import rich.progress

    from graphpass.progress import Stage, Watcher

#: Shortest stage that gets a line, and delay before a live line is drawn, in seconds.
_LONG, _SHORT = 1.0, 0.3

#: Seconds between two lines of one stage.
_BEAT = 10.0

#: Columns of the narrowest terminal that shows a bar.
WIDE = 100


def watcher(stream: TextIO, *, verbose: bool) -> Watcher:
    """Return the watcher that displays stages on ``stream``.

    Args:
        stream: A terminal, a pipe or a file.
        verbose: Whether to print a line for each stage, also for short ones.
    """
    lines = Lines(0.0 if verbose else _LONG)
    return lines if verbose or not can_draw(stream) else LiveLine(stream)


def can_draw(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can move its cursor, outside CI."""
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")


class Lines:
    """Prints a line for each long stage, at its end and every 10 s."""

    def __init__(self, least: float = _LONG) -> None:
        """Create a watcher.

        Args:
            least: Seconds of the shortest stage that gets a line.
        """
        self._least = least
        self._beats: dict[Stage, Beat] = {}

    def began(self, stage: Stage) -> None:
        """See `graphpass.progress.Watcher`."""
        self._beats[stage] = Beat(stage.started)

    def moved(self, stage: Stage) -> None:
        """Print a line if the last one is 10 s old."""
        if self._beats[stage].is_due():
            self._print(stage, counts(stage), time_left(stage))

    def ended(self, stage: Stage) -> None:
        """Print a line, unless the stage is short or counts the stages inside it."""
        del self._beats[stage]
        if stage.seconds >= self._least and stage.unit != STAGES:
            self._print(stage, _counted(stage) if stage.done else "")

    @staticmethod
    def _print(stage: Stage, *facts: str) -> None:
        facts = (*facts, f"{stage.seconds:.1f} s", in_memory(peak_memory()))
        click.echo(f"{described(stage, at=False)}: {joined(*facts)}", err=True)


class Beat:
    """Timer of lines about running work, one every 10 s."""

    def __init__(self, start: float | None = None) -> None:
        """Create a beat.

        Args:
            start: Start, by `time.perf_counter`; by default now.
        """
        self._start = time.perf_counter() if start is None else start
        self._beats = 0

    @property
    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._start

    def is_due(self) -> bool:
        """Return whether 10 s have passed since a line was due; true once per interval."""
        before, self._beats = self._beats, int(self.seconds / _BEAT)
        return self._beats > before


class LiveLine:
    """Draws the running stages, their progress and remaining time, and clears them at the end.

    Drawing begins after 0.3 s, so that short commands do not flicker or import rich.
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
        """Draw the stage, or start the timer that begins to draw."""
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
                    description=described(stage),
                    completed=stage.done,
                    total=stage.total or None,
                    counts=counts(stage),
                )

    def ended(self, stage: Stage) -> None:
        """Remove the stage; stop drawing after the last one."""
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
        """Begin to draw the running stages."""
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            ProgressColumn,
            Task,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.table import Column
        from rich.text import Text

        class Memory(ProgressColumn):
            def render(self, task: Task) -> Text:  # noqa: ARG002 - the memory of the process, whatever the task
                return Text(in_memory(peak_memory()))

        with self._lock:
            if not self._stages:  # the last stage ended before the timer
                return
            self._drawn = Progress(
                TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold")),
                *([BarColumn(bar_width=20)] if Console(file=self._stream).width >= WIDE else []),
                TextColumn("{task.fields[counts]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(elapsed_when_finished=True),
                Memory(),
                console=Console(file=self._stream),
                transient=True,
                redirect_stdout=False,  # stdout may be a file or a pipe
            )
            for stage in self._stages:
                self._add(self._drawn, stage)
            self._drawn.start()

    def _add(self, drawn: rich.progress.Progress, stage: Stage) -> None:
        task = drawn.add_task(described(stage), total=stage.total or None, completed=stage.done, counts=counts(stage))
        self._stages[stage] = task


def joined(*facts: str) -> str:
    """Return the facts that are not empty, joined by commas."""
    return ", ".join(filter(None, facts))


def time_left(stage: Stage) -> str:
    """Return ``9 s left``; empty if unknown."""
    return "" if stage.seconds_left is None else f"{stage.seconds_left:.0f} s left"


def in_memory(count: int) -> str:
    """Return ``612 MB``; empty if ``count`` is 0, for unknown."""
    from graphpass.reports.text import in_bytes

    return in_bytes(count) if count else ""


def counts(stage: Stage) -> str:
    """Return ``12 of 43 steps (28%)``; empty if the stage does not count."""
    percent = "" if stage.share is None else f" ({stage.share:.0%})"
    return f"{_counted(stage)}{percent}"


def described(stage: Stage, *, at: bool = True) -> str:
    """Return the description of a stage.

    Args:
        stage: The stage.
        at: Whether to append the stage's item in progress.
    """
    return printable(on_one_line(f"{stage.text} {stage.at}".rstrip() if at else stage.text))


def _counted(stage: Stage) -> str:
    from graphpass.reports.text import in_bytes

    if not stage.unit:
        return ""
    as_text, unit = (in_bytes, "") if stage.unit == "bytes" else (str, f" {stage.unit}")
    done = "" if stage.done >= stage.total else f"{as_text(stage.done)} of "
    return f"{done}{as_text(max(stage.done, stage.total))}{unit}"
