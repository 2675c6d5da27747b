"""Observers of a pipeline: what times, prints, dumps and checks between passes, so that no pass does."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, TextIO

from graphpass.engine.passes import Skipped
from graphpass.progress import Activity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from graphpass.engine.passes import Pass, PassResult
    from graphpass.ir.model import Model

__all__ = ["DumpDir", "Instrumentation", "PrintChanged", "Progress", "Statistics", "Timing"]


class Instrumentation:
    """Hooks around a pipeline and each of its passes; every hook does nothing by default."""

    def before_pipeline(self, passes: Sequence[Pass[Model]], model: Model) -> None:
        """Called once, with the working copy, before the first pass."""

    def after_pipeline(self, passes: Sequence[Pass[Model]], model: Model) -> None:
        """Called once, with the result, after the last pass."""

    def before_pass(self, step: Pass[Model], model: Model) -> None:
        """Called when the pass's requirements hold, before it runs."""

    def after_pass(self, step: Pass[Model], model: Model, result: PassResult) -> None:
        """Called with the resulting model when the pass's promises hold."""

    def pass_failed(self, step: Pass[Model], model: Model, error: Exception) -> None:
        """Called with the model as the pass left it; the manager raises afterwards."""


class Timing(Instrumentation):
    """How long each pass took. Put it last, so that it does not measure other observers.

    Attributes:
        seconds: Name and seconds of each pass that ran to its end, in order.
    """

    def __init__(self) -> None:
        self.seconds: list[tuple[str, float]] = []
        self._start = 0.0

    @property
    def total(self) -> float:
        """Seconds in all passes together."""
        return sum(seconds for _, seconds in self.seconds)

    def before_pass(self, step: Pass[Model], model: Model) -> None:  # noqa: D102, ARG002
        self._start = time.perf_counter()

    def after_pass(self, step: Pass[Model], model: Model, result: PassResult) -> None:  # noqa: D102, ARG002
        self.seconds.append((step.name, time.perf_counter() - self._start))

    def table(self) -> str:
        """One line a pass, and the total."""
        rows = [*self.seconds, ("total", self.total)]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {seconds:8.3f} s" for name, seconds in rows)


class Statistics(Instrumentation):
    """What each pass says it did.

    Attributes:
        outcomes: Name of each pass, and in one line what came of it.
        notes: Name of a pass, and something that the user should know.
    """

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, str]] = []
        self.notes: list[tuple[str, str]] = []

    def after_pass(self, step: Pass[Model], model: Model, result: PassResult) -> None:  # noqa: D102, ARG002
        if isinstance(result, Skipped):
            self.outcomes.append((step.name, f"skipped: {result.reason}"))
            return
        did = ", ".join(f"{count} {name}" for name, count in result.statistics.items())
        outcome = did or ("changed" if result.changed else "unchanged")
        self.outcomes.append((step.name, outcome))
        self.notes.extend((step.name, note) for note in result.notes)


class PrintChanged(Instrumentation):
    """Tells for each pass that changed the model how many operators of each type came and went."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """Create an observer.

        Args:
            tell: Takes one line for each pass that changed the model.
        """
        self._tell = tell
        self._before: Counter[str] = Counter()

    def before_pass(self, step: Pass[Model], model: Model) -> None:  # noqa: D102, ARG002
        self._before = _operators(model)

    def after_pass(self, step: Pass[Model], model: Model, result: PassResult) -> None:  # noqa: D102
        if isinstance(result, Skipped) or not result.changed:
            return
        after = _operators(model)
        differences = {op: after[op] - self._before[op] for op in sorted(self._before.keys() | after.keys())}
        told = ", ".join(f"{op} {difference:+d}" for op, difference in differences.items() if difference)
        size = f"{self._before.total()} -> {after.total()} nodes"
        self._tell(f"{step.name}: {told or 'the same operators'} ({size})")


class DumpDir(Instrumentation):
    """Writes the model after each pass as ``NN-pass-name.xml`` or ``.onnx``."""

    def __init__(self, folder: Path) -> None:
        """Create an observer.

        Args:
            folder: Where to; made where it does not exist.
        """
        self._folder = folder
        self._number = 0

    def after_pass(self, step: Pass[Model], model: Model, result: PassResult) -> None:  # noqa: D102, ARG002
        from graphpass.io import save

        self._number += 1
        suffix = ".onnx" if model.dialect == "onnx" else ".xml"
        save(model, self._folder / f"{self._number:02}-{step.name}{suffix}")


class Progress(Instrumentation):
    """Prints one line for each pass that takes over a second."""

    def __init__(self, stream: TextIO, delay: float = 1.0) -> None:
        """Create an observer.

        Args:
            stream: Where to print.
            delay: Seconds that a pass may take silently.
        """
        self._stream = stream
        self._delay = delay
        self._activity: Activity | None = None

    def before_pass(self, step: Pass[Model], model: Model) -> None:  # noqa: D102, ARG002
        self._activity = Activity(step.name, self._stream, self._delay).__enter__()

    def after_pass(self, step: Pass[Model], model: Model, result: PassResult) -> None:  # noqa: D102, ARG002
        self._end()

    def pass_failed(self, step: Pass[Model], model: Model, error: Exception) -> None:  # noqa: D102, ARG002
        self._end()

    def _end(self) -> None:
        # A pass whose requirements do not hold fails before it begins.
        if self._activity is not None:
            self._activity.__exit__()
            self._activity = None


def _operators(model: Model) -> Counter[str]:
    return Counter(node.op for node in model.graph.nodes)
