"""Run cells, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from graphpass.errors import GraphpassError, PassFailedError
from graphpass.storage.addresses import StoredFolder, is_address

from .cells import Cell, CellResult
from .work import run_cell

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

#: Memory of a process that has loaded the libraries and converts a tiny model, measured: 0.45 GiB.
_BASE = 500 * 2**20

#: Memory for each byte of a model: the input, the result, and both as their runtimes hold them to compare.
_FACTOR = 4


class Executor(Protocol):
    """Runs cells somewhere."""

    def run(self, cells: Sequence[Cell], started: Callable[[Cell], None]) -> Iterator[CellResult]:
        """Yield results as cells end.

        Closing the iterator stops the cells that still run.

        Args:
            cells: The cells, in the order in which they are to start.
            started: Called for each cell that starts.
        """


@dataclass(frozen=True, slots=True)
class Processes:
    """Runs cells in processes on this machine.

    A process takes one cell, so a cell that brings its process down fails alone, and its memory is free after it.

    Attributes:
        jobs: Number of cells at a time.
        memory: Bytes that they take together, by estimate. A cell that takes more runs alone.
    """

    jobs: int
    memory: int
    _running: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def run(self, cells: Sequence[Cell], started: Callable[[Cell], None]) -> Iterator[CellResult]:
        """See `Executor.run`."""
        context: Any = get_context("spawn" if sys.platform == "win32" else "forkserver")
        if sys.platform != "win32":
            # Its children find the libraries loaded: a cell then starts in 20 ms instead of 1.5 s.
            context.set_forkserver_preload(["graphpass.matrix.preloaded"])
        waiting = [(cell, estimate(cell)) for cell in cells]
        running: dict[Future[CellResult], int] = {}
        stop = threading.Event()
        with ThreadPoolExecutor(self.jobs, "cell") as threads:
            try:
                while waiting or running:
                    for cell, size in list(waiting):
                        if len(running) < self.jobs and (not running or sum(running.values()) + size <= self.memory):
                            waiting.remove((cell, size))
                            started(cell)
                            running[threads.submit(_in_process, context, cell, stop)] = size
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        del running[future]
                        yield future.result()
            finally:
                stop.set()


def _in_process(context: Any, cell: Cell, stop: threading.Event) -> CellResult:
    """Run a cell in a new process, and wait for its end."""
    start = time.perf_counter()
    timeout = cell.settings.timeout
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "log")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_worker, args=(cell, sender, log), name=cell.id, daemon=True)
        process.start()
        sender.close()
        result: CellResult | None = None
        error: GraphpassError | None = None
        while result is None and error is None:
            if receiver.poll(0.1):
                try:
                    result = receiver.recv()
                except EOFError:
                    process.join()
                    error = PassFailedError("GP406", f"the process ended {_ending(process.exitcode)}{_last_words(log)}")
            elif stop.is_set():
                return _stopped(process, CellResult(cell, "cancelled", file=cell.source))
            elif timeout is not None and time.perf_counter() - start > timeout:
                hint = "raise its timeout, or leave it out"
                error = PassFailedError("GP407", f"the cell did not end within {timeout:g} seconds", hint)
        if error is not None:
            result = replace(CellResult.of_error(cell, error), seconds=time.perf_counter() - start)
        assert result is not None
        return _stopped(process, result)


def _stopped(process: Any, result: CellResult) -> CellResult:
    process.join(0 if result.state == "cancelled" else 1)
    if process.is_alive():
        process.kill()
    process.join()
    process.close()
    return result


def _worker(cell: Cell, sender: Connection, log: Path) -> None:
    """Run a cell, with what libraries print in a file, and end with the parent."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    with log.open("wb") as stream:
        for descriptor in (1, 2):
            os.dup2(stream.fileno(), descriptor)
    sender.send(run_cell(cell))
    sender.close()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def _ending(code: int | None) -> str:
    return f"by signal {-code}" if code is not None and code < 0 else f"with {code}"


def _last_words(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines:
            return f": {lines[-1]}"
    return ""


def estimate(cell: Cell) -> int:
    """Estimate the memory of a cell in bytes by the size of its model's files."""
    if is_address(cell.source):
        return _BASE + _FACTOR * _stored_bytes(cell.source)
    source = Path(cell.source)
    if not source.exists():  # the cell itself reports it
        return _BASE
    folder = source if source.is_dir() else source.parent
    try:
        return _BASE + _FACTOR * sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    except OSError:
        return _BASE


def _stored_bytes(address: str) -> int:
    """Return the size of all files in the folder of a model."""
    with contextlib.suppress(GraphpassError):  # the cell itself reports it
        folder = StoredFolder(address)
        if folder.is_file():
            folder = StoredFolder(address.rpartition("/")[0])
        return sum(file.bytes for file in folder.files(depth=1).values())
    return 0
