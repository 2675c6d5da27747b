"""Lines and tables of a run in progress."""

import io
import re
import time

from matrix.cells import cell, failed

from graphpass.cli.ci_progress import LiveTable, PlainLines
from graphpass.cli.console import Console
from graphpass.matrix.cells import CellResult
from graphpass.matrix.progress import Position
from graphpass.progress import Stage

RESULTS = [
    CellResult(cell("good"), "converted", seconds=1.25),
    CellResult(cell("old"), "up to date"),
    failed(2, model="bad[/]"),
    CellResult(cell("late"), "cancelled"),
]


def half_done():
    """The position of a cell that did half of its work in 15 s."""
    stage = Stage("verifying", "steps", 40, 20, "prompt\x1b[2J", time.perf_counter() - 15)
    return Position(stage, Stage("converting", "stages", 7, 4), 2**29)


def show(progress):
    progress.begin([result.cell for result in RESULTS])
    for result in RESULTS:
        if result.state != "up to date":
            progress.started(result.cell)
            progress.moved(result.cell, half_done())
        progress.ended(result)
    progress.end()


def test_plain_lines_show_each_cell(capfd):
    show(PlainLines(len(RESULTS), Console()))
    assert capfd.readouterr().err.splitlines() == [
        "[1/4] good:cpu converted (1.2 s)",
        "[2/4] old:cpu up to date",
        "[3/4] bad[/]:cpu failed: GP350: node0 is not fused: 0 ms (and 1 more) (0.0 s)",
        "[4/4] late:cpu cancelled (0.0 s)",
    ]
    show(PlainLines(len(RESULTS), Console(verbose=True)))
    assert "good:cpu started" in capfd.readouterr().err


def test_progress_lines_of_a_long_cell(capfd, monkeypatch):
    monkeypatch.setattr("graphpass.cli.watch._BEAT", 1e-9)
    lines = PlainLines(1, Console())
    lines.started(cell())
    lines.moved(cell(), half_done())
    line = capfd.readouterr().err
    assert line == "m:cpu 4 of 7 stages (57%), verifying prompt\\x1b[2J: 20 of 40 steps (50%), 15 s left, 0 s, 537 MB\n"


def test_a_table_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    table = LiveTable(len(RESULTS), stream)
    monkeypatch.setattr(table, "moved", lambda *given: (LiveTable.moved(table, *given), table._bars.refresh()))
    show(table)
    text = re.sub(r"\x1b\[[\d;?]*\w", "", stream.getvalue())
    for words in ("good:cpu converted (1.2 s)", "old:cpu up to date", "bad[/]:cpu failed: GP350: node0"):
        assert words in text
    assert "verifying prompt\\x1b[2J: 20 of 40 steps (50%), 15 s left, 537 MB" in " ".join(text.split())
    assert "3 of 4 cells (75%)" in text
