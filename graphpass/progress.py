"""Report stages of long work, and time by pass and analysis, to whoever watches.

>>> with watched(watcher), stage("copying"):    # doctest: +SKIP
...     expect(len(blocks), "blocks")
...     for block in blocks:
...         copy(block)
...         advance()

Nothing is watched by default, and reports cost next to nothing then. Threads that graphpass starts report nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

#: Unit of work that is counted by the stages inside it.
STAGES = "stages"

#: Unit of what is read and written, for whatever purpose.
BYTES = "bytes"

#: Most reports on the items of `counting`.
_REPORTS = 100

Item = TypeVar("Item")


@dataclass(eq=False, slots=True)
class Stage:
    """Follows one stage of work.

    Attributes:
        text: The work: ``verifying``.
        unit: The counted things, or ``bytes``; empty if nothing is counted.
        total: Their number; 0 if it is not known yet.
        done: Those that are done.
        at: The part in work.
        started: Seconds of `time.perf_counter`.
    """

    text: str
    unit: str = ""
    total: int = 0
    done: int = 0
    at: str = ""
    started: float = field(default_factory=time.perf_counter)

    @property
    def share(self) -> float | None:
        """Return the part that is done, from 0 to 1, if known."""
        return min(1.0, self.done / self.total) if self.total else None

    @property
    def seconds_left(self) -> float | None:
        """Return an estimate of the remaining time; ``None`` if there is none."""
        return self.seconds * (1 / self.share - 1) if self.share and self.unit != STAGES else None

    @property
    def seconds(self) -> float:
        """Return the time since the stage began."""
        return time.perf_counter() - self.started


class Watcher(Protocol):
    """Follows stages; inner ones begin and end while outer ones last."""

    def began(self, stage: Stage) -> None:
        """Observe the begin of a stage."""

    def moved(self, stage: Stage) -> None:
        """Observe that counts or the part in work changed."""

    def ended(self, stage: Stage) -> None:
        """Observe the end of a stage, failed ones included."""


_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)
_STAGE: ContextVar[Stage | None] = ContextVar("stage", default=None)


@contextlib.contextmanager
def watched(watcher: Watcher | None) -> Iterator[None]:
    """Report stages to ``watcher`` as long as the context lasts; ``None`` silences them."""
    with _set(_WATCHER, watcher), _set(_STAGE, None):
        yield


@contextlib.contextmanager
def stage(text: str) -> Iterator[None]:
    """Begin a stage, and end it with the context."""
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
    """Begin work that is counted by the stages inside it.

    Args:
        text: The work.
        count: Number of stages that are known by now.
    """
    with stage(text):
        expect(count, STAGES)
        yield


def expect(count: int, unit: str) -> None:
    """Announce ``count`` more things to do in the innermost stage.

    A stage that counts other things than bytes goes on to count these.
    """
    current, watcher = _STAGE.get(), _WATCHER.get()
    if current is None or watcher is None or (unit == BYTES and current.unit not in {"", BYTES}):
        return
    if current.unit == BYTES != unit:
        current.done = current.total = 0
    current.total, current.unit = current.total + count, unit
    watcher.moved(current)


def advance(count: int = 1, at: str = "", unit: str | None = None) -> None:
    """Report ``count`` things done in the innermost stage.

    Args:
        count: Their number.
        at: The part in work from now on; empty if it is the same.
        unit: Their unit; nothing is reported to a stage that counts something else.
    """
    current, watcher = _STAGE.get(), _WATCHER.get()
    if current is not None and watcher is not None and unit in {None, current.unit}:
        current.done, current.at = current.done + count, at or current.at
        watcher.moved(current)


@contextlib.contextmanager
def counting(text: str, items: Sequence[Item], unit: str) -> Iterator[Iterable[Item]]:
    """Count items in a stage of their own, except inside stages that count other things.

    >>> with counting("inferring sizes", graph.nodes, "operators") as nodes:    # doctest: +SKIP
    ...     for node in nodes:
    ...         infer(node)

    Args:
        text: The work.
        items: The items, which are done when the next one is taken.
        unit: Their unit.
    """
    current = _STAGE.get()
    if current is None or current.unit:
        yield items
        return
    with stage(text):
        expect(len(items), unit)
        yield _counted(items)


def _counted(items: Sequence[Item]) -> Iterator[Item]:
    apart = -(-len(items) // _REPORTS) or 1
    for number, item in enumerate(items, 1):
        yield item
        if not number % apart:
            advance(apart)
    if rest := len(items) % apart:
        advance(rest)


@dataclass(slots=True)
class Timing:
    """Sums up the runs of a pass or an analysis.

    Attributes:
        kind: ``pass`` or ``analysis``.
        name: Its name.
        runs: Number of runs.
        seconds: Time of its own, without passes and analyses inside.
        peak: The process's largest memory until the last run ended, in bytes; 0 if it is unknown.
    """

    kind: str
    name: str
    runs: int = 0
    seconds: float = 0.0
    peak: int = 0


class Clock:
    """Times passes and analyses apart, though they run inside one another."""

    def __init__(self) -> None:
        """Create a clock that has measured nothing."""
        self._timings: dict[tuple[str, str], Timing] = {}
        self._inner: list[float] = []

    @property
    def timings(self) -> tuple[Timing, ...]:
        """Return a sum for each pass and analysis, in the order of their first end."""
        return tuple(self._timings.values())

    @contextlib.contextmanager
    def measure(self, kind: str, name: str) -> Iterator[None]:
        """Add the time of the context to the sum of ``name``."""
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
    """Measure by ``clock`` as long as the context lasts."""
    with _set(_CLOCK, clock):
        yield


def timed(kind: str, name: str) -> contextlib.AbstractContextManager[None]:
    """Return a context whose time counts as that of a pass or an analysis."""
    clock = _CLOCK.get()
    return contextlib.nullcontext() if clock is None else clock.measure(kind, name)


def peak_memory() -> int:
    """Return the largest memory of the process in bytes; 0 if it is unknown."""
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
