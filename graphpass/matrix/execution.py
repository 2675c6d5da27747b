"""Run cells in processes, one process for each cell."""

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

#: Memory of a process for a tiny model, mostly libraries; measured: 0.45 GiB.
_BASE = 500 * 2**20

#: Memory for each byte of a model: input and result, each as a graph and as a session.
_FACTOR = 4


#: Priority of a finalizer after that of `get_temp_dir`.
_AFTER_SOCKETS = -200


class Executor(Protocol):
    """Runs cells in processes, on this machine or elsewhere."""

    def run(self, cells: Sequence[Cell], progress: Progress) -> Iterator[CellResult]:
        """Yield results as cells end.

        Closing the iterator stops the cells that still run.

        Args:
            cells: The cells, in starting order.
            progress: Observes starts and stages of cells.
        """


@dataclass(frozen=True, slots=True)
class Processes:
    """Runs cells in processes on this machine.

    Each process runs one cell, so that a crash fails only its cell, and memory is freed at the cell's end.

    Attributes:
        jobs: Largest number of cells in parallel.
        memory: Limit of the estimated memory of parallel cells, in bytes. A cell above the limit runs alone.
        retries: Retries of a cell after a storage error, or if its process was killed.
    """

    jobs: int
    memory: int
    retries: int = 2

    def run(self, cells: Sequence[Cell], progress: Progress) -> Iterator[CellResult]:
        context: Any = get_context("spawn" if sys.platform == "win32" else "forkserver")
        if sys.platform != "win32":
            # Forked processes inherit the loaded libraries: a cell starts in 20 ms instead of 1.5 s.
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
    """Block SIGINT in this thread, and so in the fork server that it starts.

    Ctrl-C during the fork server's imports would make it hang, and processes that wait for it: the fork server waits
    for a thread of OpenVINO's telemetry, which waits for an import.
    """
    if sys.platform != "win32":
        resource_tracker.ensure_running()  # starting the tracker later would unblock SIGINT
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _would_disturb(cell: Cell, other: Cell) -> bool:
    """Return whether one of two cells would append to weights that the other reads."""
    return cell.source == other.source and "share" in (cell.settings.weights, other.settings.weights)


@functools.cache
def _place_sockets() -> None:
    """Create `multiprocessing`'s sockets in a scratch folder, which `tidy` removes after a crash."""
    stack = contextlib.ExitStack()
    folder = stack.enter_context(scratch_folder(RUN_PREFIX))
    Finalize(None, stack.close, exitpriority=_AFTER_SOCKETS)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        get_temp_dir()
    finally:
        tempfile.tempdir = before


def estimate(cell: Cell) -> int:
    """Return the memory of a cell in bytes, estimated by its model's files."""
    if is_address(cell.source):
        return _BASE + _FACTOR * _stored_bytes(cell.source)
    source = Path(cell.source)
    if not source.exists():  # the cell reports the error
        return _BASE
    folder = source if source.is_dir() else source.parent
    try:
        return _BASE + _FACTOR * sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    except OSError:
        return _BASE


def _stored_bytes(address: str) -> int:
    """Return the size of all files in a stored model's folder, in bytes."""
    with contextlib.suppress(GraphpassError):  # the cell reports the error
        folder = StoredFolder(address)
        if folder.is_file():
            folder = StoredFolder(address.rpartition("/")[0])
        return sum(file.bytes for file in folder.files(depth=1).values())
    return 0
