"""Progress of long work by stages, and time by pass and analysis.

>>> with watched(watcher), stage("copying"):    # doctest: +SKIP
...     expect(len(blocks), "blocks")
...     for block in blocks:
...         copy(block)
...         advance()

Without a watcher, reports have almost no cost. Threads that graphpass starts report nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

#: Unit of a stage that counts the stages inside it.
STAGES = "stages"

#: Unit of reads and writes.
BYTES = "bytes"

#: Largest number of reports of one `counting` context.
_REPORTS = 100

Item = TypeVar("Item")


@dataclass(eq=False, slots=True)
class Stage:
    """Progress of one stage of work.

    Attributes:
        text: Description of the work: ``verifying``.
        unit: Unit of the counts, such as ``steps`` or ``bytes``; empty if the stage does not count.
        total: Units in total; 0 if unknown.
        done: Completed units.
        at: Item in progress.
        started: Start of the stage, by `time.perf_counter`.
    """

    text: str
    unit: str = ""
    total: int = 0
    done: int = 0
    at: str = ""
    started: float = field(default_factory=time.perf_counter)

    @property
    def share(self) -> float | None:
        """Return the completed share, from 0 to 1; ``None`` if the total is unknown."""
        return min(1.0, self.done / self.total) if self.total else None

    @property
    def seconds_left(self) -> float | None:
        """Return an estimate of the remaining seconds; ``None`` if unknown."""
        return self.seconds * (1 / self.share - 1) if self.share and self.unit != STAGES else None

    @property
    def seconds(self) -> float:
        """Return the seconds since the stage began."""
        return time.perf_counter() - self.started


class Watcher(Protocol):
    """Receives the events of stages, which may be nested."""

    def began(self, stage: Stage) -> None:
        """Handle the start of a stage."""

    def moved(self, stage: Stage) -> None:
        """Handle a change of counts or of the item in progress."""

    def ended(self, stage: Stage) -> None:
        """Handle the end of a stage, also after an exception."""


_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)
_STAGE: ContextVar[Stage | None] = ContextVar("stage", default=None)


@contextlib.contextmanager
def watched(watcher: Watcher | None) -> Iterator[None]:
    """Report stages inside the context to ``watcher``; ``None`` reports none."""
    with _set(_WATCHER, watcher), _set(_STAGE, None):
        yield


@contextlib.contextmanager
def stage(text: str) -> Iterator[None]:
    """Run the context as a stage."""
    watcher = _WATCHER.get()
    if watcher is None:
        yield
        return
    began = Stage(text)
    with _set(_STAGE, began):
        watcher.began(began)
        try:
            yield
        finally:
            watcher.ended(began)
    advance(unit=STAGES)


@contextlib.contextmanager
def stages(text: str, count: int) -> Iterator[None]:
    """Run the context as a stage that counts the stages inside it.

    Args:
        text: Description of the work.
        count: Number of inner stages known so far.
    """
    with stage(text):
        expect(count, STAGES)
        yield


def expect(count: int, unit: str) -> None:
    """Add units of work to the total of the innermost stage.

    Args:
        count: Number of units.
        unit: Unit of ``count``. A stage that counts in another unit ignores bytes. Another unit replaces bytes and
            resets the counts.
    """
    current, watcher = _STAGE.get(), _WATCHER.get()
    if current is None or watcher is None or (unit == BYTES and current.unit not in {"", BYTES}):
        return
    if current.unit == BYTES != unit:
        current.done = current.total = 0
    current.total, current.unit = current.total + count, unit
    watcher.moved(current)


def advance(count: int = 1, at: str = "", unit: str | None = None) -> None:
    """Report completed units of the innermost stage.

    Args:
        count: Number of completed units.
        at: Item in progress from now on; empty if it does not change.
        unit: Unit of ``count``; stages with another unit ignore the report.
    """
    current, watcher = _STAGE.get(), _WATCHER.get()
    if current is not None and watcher is not None and unit in {None, current.unit}:
        current.done, current.at = current.done + count, at or current.at
        watcher.moved(current)


@contextlib.contextmanager
def counting(text: str, items: Sequence[Item], unit: str) -> Iterator[Iterable[Item]]:
    """Count items in a new stage, unless the current stage already counts.

    >>> with counting("inferring sizes", graph.nodes, "operators") as nodes:    # doctest: +SKIP
    ...     for node in nodes:
    ...         infer(node)

    Args:
        text: Description of the work.
        items: The items; an item counts as completed when the next one is requested.
        unit: Unit of the items.

    Yields:
        The items, to be iterated once.
    """
    current = _STAGE.get()
    if current is None or current.unit:
        yield items
        return
    with stage(text):
        expect(len(items), unit)
        yield _counted(items)


def _counted(items: Sequence[Item]) -> Iterator[Item]:
    interval = -(-len(items) // _REPORTS) or 1
    for number, item in enumerate(items, 1):
        yield item
        if not number % interval:
            advance(interval)
    if rest := len(items) % interval:
        advance(rest)


@dataclass(slots=True)
class Timing:
    """Total of all runs of a pass or an analysis.

    Attributes:
        kind: ``pass`` or ``analysis``.
        name: Name of the pass or analysis.
        runs: Number of runs.
        seconds: Time without nested passes and analyses.
        peak: Peak memory of the process at the end of the last run, in bytes; 0 if unknown.
    """

    kind: str
    name: str
    runs: int = 0
    seconds: float = 0.0
    peak: int = 0


class Clock:
    """Measures each pass and analysis without those nested inside."""

    def __init__(self) -> None:
        """Create a clock without timings."""
        self._timings: dict[tuple[str, str], Timing] = {}
        self._inner: list[float] = []

    @property
    def timings(self) -> tuple[Timing, ...]:
        """Return a total for each pass and analysis, ordered by their first end."""
        return tuple(self._timings.values())

    @contextlib.contextmanager
    def measure(self, kind: str, name: str) -> Iterator[None]:
        """Add the time of the context to the total of a pass or an analysis.

        Args:
            kind: ``pass`` or ``analysis``.
            name: Name of the pass or analysis.
        """
        start = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            timing = self._timings.setdefault((kind, name), Timing(kind, name))
            timing.runs += 1
            timing.seconds += spent - self._inner.pop()
            timing.peak = peak_memory()
            if self._inner:
                self._inner[-1] += spent


_CLOCK: ContextVar[Clock | None] = ContextVar("clock", default=None)


@contextlib.contextmanager
def clocked(clock: Clock) -> Iterator[None]:
    """Measure passes and analyses inside the context by ``clock``."""
    with _set(_CLOCK, clock):
        yield


def timed(kind: str, name: str) -> contextlib.AbstractContextManager[None]:
    """Return a context that is measured as a run of a pass or an analysis.

    Args:
        kind: ``pass`` or ``analysis``.
        name: Name of the pass or analysis.
    """
    clock = _CLOCK.get()
    return contextlib.nullcontext() if clock is None else clock.measure(kind, name)


def peak_memory() -> int:
    """Return the peak memory of the process in bytes; 0 if unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@contextlib.contextmanager
def _set(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
