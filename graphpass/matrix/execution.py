"""Run cells, each in a process of its own."""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.util import Finalize, get_temp_dir
from pathlib import Path
from typing import Any, Protocol

from graphpass.errors import GraphpassError
from graphpass.storage.addresses import StoredFolder, is_address
from graphpass.storage.scratch_folder import scratch_folder

from .cells import Cell, CellResult, may_pass
from .process import Ended, run_in_process
from .progress import Progress
from .tidying import RUN_PREFIX

#: Memory of a process that has loaded the libraries and converts a tiny model, measured: 0.45 GiB.
_BASE = 500 * 2**20

#: Memory for each byte of a model: the input, the result, and both as their runtimes hold them to compare.
_FACTOR = 4


#: Priority of a finalizer after that of `get_temp_dir`.
_AFTER_SOCKETS = -200


class Executor(Protocol):
    """Runs cells somewhere."""

    def run(self, cells: Sequence[Cell], progress: Progress) -> Iterator[CellResult]:
        """Yield results as cells end.

        Closing the iterator stops the cells that still run.

        Args:
            cells: The cells, in the order in which they are to start.
            progress: Observes those that start, and their stages.
        """


@dataclass(frozen=True, slots=True)
class Processes:
    """Runs cells in processes on this machine.

    A process takes one cell, so a cell that brings its process down fails alone, and its memory is free after it.

    Attributes:
        jobs: Number of cells at a time.
        memory: Bytes that they take together, by estimate. A cell that takes more runs alone.
        retries: Number of further tries of a cell that a storage failed, or whose process was ended from outside.
    """

    jobs: int
    memory: int
    retries: int = 2

    def run(self, cells: Sequence[Cell], progress: Progress) -> Iterator[CellResult]:
        context: Any = get_context("spawn" if sys.platform == "win32" else "forkserver")
        if sys.platform != "win32":
            # Its children find the libraries loaded: a cell then starts in 20 ms instead of 1.5 s.
            context.set_forkserver_preload(["graphpass.matrix.preloaded"])
            _place_sockets()
        waiting = [(cell, estimate(cell)) for cell in cells]
        running: dict[Future[Ended], tuple[Cell, int]] = {}
        tries: Counter[str] = Counter()
        stop = threading.Event()
        pool = ThreadPoolExecutor(self.jobs, "cell", _block_interrupts)
        with scratch_folder(RUN_PREFIX) as scratch, pool as threads:
            try:
                while waiting or running:
                    for cell, size in list(waiting):
                        taken = sum(taken for _, taken in running.values())
                        fits = len(running) < self.jobs and (not running or taken + size <= self.memory)
                        if fits and not any(_would_disturb(cell, other) for other, _ in running.values()):
                            waiting.remove((cell, size))
                            if not tries[cell.id]:
                                progress.started(cell)
                            tries[cell.id] += 1
                            moved = functools.partial(progress.moved, cell)
                            future = threads.submit(run_in_process, context, cell, stop, scratch, moved)
                            running[future] = cell, size
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        cell, size = running.pop(future)
                        ended = future.result()
                        if tries[cell.id] <= self.retries and (ended.lost or may_pass(ended.result)):
                            waiting.insert(0, (cell, size))
                        else:
                            yield ended.result
            finally:
                stop.set()


def _block_interrupts() -> None:
    """Block SIGINT in a thread, and so in the server that it starts.

    An interrupt of the server's imports, as by Ctrl-C in a terminal, lets it hang while others wait for its answer:
    OpenVINO's telemetry has a thread that waits for an import, and the server waits for that thread.
    """
    if sys.platform != "win32":
        resource_tracker.ensure_running()  # its start unblocks them
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _would_disturb(cell: Cell, other: Cell) -> bool:
    """Return whether one of two cells would append to the weights that the other reads."""
    return cell.source == other.source and "share" in (cell.settings.weights, other.settings.weights)


@functools.cache
def _place_sockets() -> None:
    """Have `multiprocessing` keep its sockets in a folder that `tidy` knows."""
    stack = contextlib.ExitStack()
    folder = stack.enter_context(scratch_folder(RUN_PREFIX))
    Finalize(None, stack.close, exitpriority=_AFTER_SOCKETS)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        get_temp_dir()
    finally:
        tempfile.tempdir = before


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
