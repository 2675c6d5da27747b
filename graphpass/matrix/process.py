"""Run one cell in a new process."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpass.errors import PassFailedError
from graphpass.progress import watched

from .cells import Cell, CellResult
from .progress import Position, Reporter
from .tidying import tidy_output
from .work import run_cell

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

#: Seconds to wait for a process to end, after its result or after a kill.
_PATIENCE = 1.0

#: Exit codes of processes killed from outside: by the kernel if memory is short, a user, or a CI system. 255 means that
#: the fork server ended before the process, so that the exit code is unknown.
_FROM_OUTSIDE = frozenset({-9, -15, 255})


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a cell's process.

    Attributes:
        result: The result of the cell.
        lost: Whether the process was killed from outside, so that a retry may succeed.
    """

    result: CellResult
    lost: bool = False


def run_in_process(
    context: Any, cell: Cell, stop: threading.Event, folder: Path, moved: Callable[[Position], None]
) -> Ended:
    """Run a cell in a new process, and wait for its end.

    Args:
        context: Context of `multiprocessing` that starts the process.
        cell: The cell.
        stop: Event that ends the process.
        folder: A folder for temporary files of the process; they are removed at its end.
        moved: Receives the cell's position when it changes.

    Returns:
        The result, or the error by which the process ended.
    """
    scratch = Path(tempfile.mkdtemp(dir=folder))
    try:
        return _Following(context, cell, scratch).follow(stop, moved)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class _Following:
    """The process of a cell."""

    def __init__(self, context: Any, cell: Cell, scratch: Path) -> None:
        self._cell, self._log, self._start = cell, scratch / "log", time.perf_counter()
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_worker, args=(cell, sender, scratch), name=cell.id, daemon=True)
        self._failure: BaseException | None = None
        try:
            self._process.start()
        except (OSError, EOFError) as error:  # the fork server ended
            self._failure = error
        sender.close()

    def follow(self, stop: threading.Event, moved: Callable[[Position], None]) -> Ended:
        if self._failure is not None:
            cause = " ".join(str(self._failure).split()) or type(self._failure).__name__
            hint = "set TMPDIR to a shorter path" if "AF_UNIX" in cause else None
            return self._failed(f"cannot start a process: {cause}", hint=hint, lost=True)
        timeout = self._cell.settings.timeout
        with self._receiver:
            while not stop.is_set():
                if self._receiver.poll(0.1):
                    try:
                        event: CellResult | Position = self._receiver.recv()
                    except (EOFError, ConnectionError):
                        return self._ended()
                    if isinstance(event, CellResult):
                        self._end(_PATIENCE)
                        return Ended(event)
                    moved(event)
                if timeout is not None and time.perf_counter() - self._start > timeout:
                    self._end(0)
                    message = f"the cell did not end within {timeout:g} s"
                    return self._failed(message, "GP407", "raise its timeout, or leave it out")
            self._end(0)
            tidy_output(self._cell)
            return Ended(CellResult(self._cell, "cancelled", file=self._cell.source))

    def _ended(self) -> Ended:
        self._process.join()
        code = self._process.exitcode
        way = f"by signal {-code}" if code < 0 else "from outside" if code in _FROM_OUTSIDE else f"with {code}"
        return self._failed(f"the process ended {way}{_last_words(self._log)}", lost=code in _FROM_OUTSIDE)

    def _failed(self, message: str, rule: str = "GP406", hint: str | None = None, *, lost: bool = False) -> Ended:
        tidy_output(self._cell)
        result = CellResult.of_error(self._cell, PassFailedError(rule, message, hint))
        return Ended(replace(result, seconds=time.perf_counter() - self._start), lost)

    def _end(self, patience: float) -> None:
        """End the process and its children."""
        self._process.join(patience)
        # After the fork server ended, a running process counts as ended, but its end of the pipe is open.
        if self._process.is_alive() or not self._let_go(0):
            for kill in (_kill_group, _kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(self._process.pid)
            self._let_go(_PATIENCE)
        self._process.join()
        self._process.close()

    def _let_go(self, patience: float) -> bool:
        try:
            while self._receiver.poll(patience):
                self._receiver.recv()
        except (EOFError, ConnectionError):
            return True
        return False


def _kill_group(pid: int) -> None:
    if sys.platform != "win32":
        os.killpg(pid, signal.SIGKILL)


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)


def _worker(cell: Cell, sender: Connection, scratch: Path) -> None:
    """Run a cell with output redirected to a log, and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives the signal, too, and ends its cells
    if sys.platform != "win32":
        os.setpgid(0, 0)  # so that the parent can kill the cell's children
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
    with (scratch / "log").open("wb") as stream:
        for descriptor in (1, 2):
            os.dup2(stream.fileno(), descriptor)
    with watched(Reporter(sender.send)):
        result = run_cell(cell)
    sender.send(result)
    sender.close()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    if sys.platform != "win32":
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _last_words(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines:
            return f": {lines[-1]}"
    return ""
