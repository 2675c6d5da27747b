"""Cells in processes of their own: their results, and how processes end."""

from __future__ import annotations

import multiprocessing
import threading
from dataclasses import replace
from typing import Any

import pytest
from matrix import endings
from matrix.cells import cell

from graphpass.matrix.process import run_in_process


class Ending:
    """A context whose processes run a function in place of the cell."""

    def __init__(self, function: Any) -> None:
        self._context, self._function = multiprocessing.get_context("spawn"), function
        self.Pipe = self._context.Pipe

    def Process(self, target: Any, **rest: Any) -> Any:  # noqa: N802
        return self._context.Process(target=self._function, **rest)


@pytest.fixture
def one(tmp_path):
    output = str(tmp_path / "out")
    return replace(cell(), source=str(tmp_path), output=output, published=output)


def run(one, function, tmp_path, moved=lambda _: None, stop=None):
    (tmp_path / "scratch").mkdir()
    ended = run_in_process(Ending(function), one, stop or threading.Event(), tmp_path / "scratch", moved)
    assert list((tmp_path / "scratch").iterdir()) == []
    return ended


def test_positions_and_the_result_are_received(one, tmp_path):
    positions = []
    ended = run(one, endings.converts, tmp_path, positions.append)
    assert (ended.result.state, ended.lost) == ("converted", False)
    assert len(positions) == 1


@pytest.mark.parametrize(
    ("function", "message", "lost"),
    [
        (endings.exits, "the process ended with 3: last words", False),
        (endings.is_killed, "the process ended by signal 9", True),
        (endings.crashes, "the process ended by signal 11", False),
    ],
)
def test_processes_that_end_without_a_result(one, tmp_path, function, message, lost):
    ended = run(one, function, tmp_path)
    assert (ended.result.state, ended.lost) == ("failed", lost)
    (problem,) = ended.result.problems
    assert (problem.rule, problem.message) == ("GP406", message)
    assert ended.result.seconds > 0


def test_a_hanging_process_ends_after_its_time(one, tmp_path):
    limited = replace(one, settings=replace(one.settings, timeout=0.5))
    ended = run(limited, endings.hangs, tmp_path)
    (problem,) = ended.result.problems
    assert (problem.rule, problem.message, ended.lost) == ("GP407", "the cell did not end within 0.5 s", False)


def test_a_stopped_run_cancels_its_cells(one, tmp_path):
    stop = threading.Event()
    ended = run(one, endings.hangs, tmp_path, lambda _: stop.set(), stop)
    assert ended.result.state == "cancelled"


def test_a_process_that_does_not_start_may_be_tried_again(one, tmp_path):
    class Broken(Ending):
        def Process(self, target, **rest):  # noqa: N802
            process = super().Process(target, **rest)
            process.start = lambda: (_ for _ in ()).throw(OSError("AF_UNIX path too long"))
            return process

    ended = run_in_process(Broken(endings.converts), one, threading.Event(), tmp_path, lambda _: None)
    (problem,) = ended.result.problems
    assert (problem.message, problem.hint) == (
        "cannot start a process: AF_UNIX path too long",
        "set TMPDIR to a shorter path",
    )
    assert ended.lost
