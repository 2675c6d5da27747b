"""Run cells on a Dask cluster."""

from __future__ import annotations

import contextlib
import os
import queue
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from graphpass.artifacts.manifest import versions
from graphpass.errors import PassFailedError, UsageError
from graphpass.progress import Stage, watched
from graphpass.storage.addresses import is_address

from .cells import Cell, CellResult, may_pass
from .progress import Position, Progress, Reporter
from .work import run_cell

if TYPE_CHECKING:
    from distributed import Client, Future

_TICK = 0.5

#: Seconds between two messages of a worker about one stage.
_BEAT = 1.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """Runs cells on the workers of a Dask cluster.

    Each cell is a task. If a worker dies, its cells run again on other workers, at most as often as the scheduler's
    ``allowed-failures``; cells that it had published are then up to date. Paths must denote the same files on all
    workers, as addresses do.

    Attributes:
        scheduler: Address of the scheduler: ``tcp://host:8786``.
        retries: Retries of a cell after a storage error.
        patience: Seconds to wait for the scheduler.
    """

    scheduler: str
    retries: int = 2
    patience: float = 10.0

    def run(self, cells: Sequence[Cell], progress: Progress) -> Iterator[CellResult]:
        """See `graphpass.matrix.execution.Executor.run`.

        Yields:
            Results as cells end.

        Raises:
            UsageError: GP237, the cluster cannot be used.
        """
        with _connected(self.scheduler, self.patience) as client:
            _compare_versions(client, self.scheduler)
            yield from _Tasks(client, self.retries, progress).run(cells)


class _Tasks:
    """The tasks of one run."""

    def __init__(self, client: Client, retries: int, progress: Progress) -> None:
        self._client, self._retries, self._progress = client, retries, progress
        self._topic = f"graphpass-{uuid.uuid4().hex}"
        self._events: queue.SimpleQueue[tuple[str, str, Any]] = queue.SimpleQueue()
        self._tasks: dict[str, tuple[Cell, Future]] = {}
        self._running: dict[str, tuple[float, str]] = {}
        self._tries: Counter[str] = Counter()

    def run(self, cells: Sequence[Cell]) -> Iterator[CellResult]:
        """Yield results as cells end."""
        self._client.subscribe_topic(self._topic, lambda event: self._events.put(event[1]))
        try:
            for number, cell in enumerate(cells):
                self._submit(f"{self._topic}-{number}", cell)
            while self._tasks:
                with contextlib.suppress(queue.Empty):
                    kind, key, content = self._events.get(timeout=_TICK)
                    if key not in self._tasks:
                        continue
                    if kind == "started":
                        self._note_start(key, content)
                    elif kind == "moved":
                        self._progress.moved(self._tasks[key][0], _position(content))
                    else:
                        yield from self._ended(key)
                yield from self._overdue()
        finally:
            self._client.cancel([task for _, task in self._tasks.values()], force=True)
            self._client.unsubscribe_topic(self._topic)

    def _submit(self, key: str, cell: Cell) -> None:
        task = self._client.submit(_on_worker, _absolute(cell), self._topic, key, key=key, pure=False)
        self._tasks[key] = cell, task
        task.add_done_callback(lambda task: self._events.put(("ended", task.key, None)))

    def _note_start(self, key: str, worker: str) -> None:
        if key not in self._running:
            self._progress.started(self._tasks[key][0])
        self._running[key] = time.monotonic(), worker

    def _ended(self, key: str) -> Iterator[CellResult]:
        cell, task = self._tasks.pop(key)
        self._running.pop(key, None)
        error = task.exception()
        if error is None:
            result: CellResult = task.result()
            if self._tries[cell.id] < self._retries and may_pass(result):
                self._tries[cell.id] += 1
                self._submit(f"{key}+", cell)
            else:
                yield replace(result, cell=cell)
        else:
            cause = " ".join(f"{type(error).__name__}: {error}".split())
            yield CellResult.of_error(cell, PassFailedError("GP406", f"the cell's workers ended: {cause}"))

    def _overdue(self) -> Iterator[CellResult]:
        """End overdue cells, and their workers, because a worker's threads cannot be ended.

        Yields:
            Their results, with error GP407.
        """
        now = time.monotonic()
        for key, (start, worker) in list(self._running.items()):
            cell, task = self._tasks[key]
            timeout = cell.settings.timeout
            if timeout is not None and now - start > timeout:
                del self._tasks[key], self._running[key]
                task.cancel(force=True)
                # Dask's nanny restarts the worker.
                self._client.run(os._exit, 1, workers=[worker], on_error="ignore")
                hint = "raise its timeout, or leave it out"
                error = PassFailedError("GP407", f"the cell did not end within {timeout:g} s", hint)
                yield replace(CellResult.of_error(cell, error), seconds=now - start)


def _on_worker(cell: Cell, topic: str, key: str) -> CellResult:
    from distributed import get_worker

    worker = get_worker()
    worker.log_event(topic, ("started", key, worker.address))
    with watched(Reporter(lambda at: worker.log_event(topic, ("moved", key, _message(at))), _BEAT)):
        return run_cell(cell)


def _message(at: Position) -> dict[str, Any]:
    """Return a position as a message, with durations, since clocks differ between machines."""
    return asdict(at) | {"seconds": (at.stage.seconds, at.whole.seconds)}


def _position(content: Mapping[str, Any]) -> Position:
    now = time.perf_counter()
    pairs = zip((content["stage"], content["whole"]), content["seconds"], strict=True)
    stage, whole = (Stage(**fields | {"started": now - seconds}) for fields, seconds in pairs)
    return Position(stage, whole, content["memory"])


def _absolute(cell: Cell) -> Cell:
    """Return a cell with absolute paths, since workers have other working folders."""
    paths = {name: getattr(cell, name) for name in ("source", "output", "published")}
    return replace(cell, **{name: path if is_address(path) else os.path.abspath(path) for name, path in paths.items()})


@contextlib.contextmanager
def _connected(scheduler: str, patience: float) -> Iterator[Client]:
    try:
        from distributed import Client
    except ImportError as error:
        reason = f"cannot run cells on {scheduler}: {error.name} is not installed"
        raise UsageError("GP237", reason, "pip install 'graphpass[dask]'") from error
    try:
        client = Client(scheduler, timeout=patience, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        reason = f"no Dask scheduler answers at {scheduler}: {error}"
        raise UsageError("GP237", reason, "start one with dask scheduler, and pass its address") from error
    with client:
        yield client


def _compare_versions(client: Client, scheduler: str) -> None:
    """Check that all workers have the versions of this machine, for equal results.

    Raises:
        UsageError: GP237, a worker has another version, or cannot run graphpass.
    """
    own = versions()
    answers: dict[str, Any] = client.run(_versions, on_error="return")
    for worker, theirs in answers.items():
        if isinstance(theirs, BaseException):
            reason = f"worker {worker} of {scheduler} cannot run graphpass: {theirs}"
            raise UsageError("GP237", reason, "install the same version of graphpass on all workers")
        for name in sorted({*own, *theirs}):
            if own.get(name) != theirs.get(name):
                difference = f"{name} {theirs.get(name, 'missing')}, and {own.get(name, 'missing')} here"
                message = f"worker {worker} of {scheduler} has {difference}"
                raise UsageError("GP237", message, "install the same version on all workers")


def _versions() -> dict[str, str]:
    from graphpass.artifacts.manifest import versions

    return versions()
