"""Observers of a pipeline: what times, prints, dumps and checks between passes, so that no pass does."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, TextIO

from graphpass.engine.manager import Changed, Skipped
from graphpass.errors import PassFailedError, UnsupportedError
from graphpass.progress import Activity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from graphpass.engine.manager import Pass, PassResult
    from graphpass.ir.model import Model

__all__ = ["DumpDir", "Instrumentation", "PrintChanged", "Progress", "Statistics", "Timing", "VerifyEach"]


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
        outcome = "unchanged"
        if isinstance(result, Changed):
            outcome = ", ".join(f"{count} {name}" for name, count in result.statistics.items()) or "changed"
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
        if not isinstance(result, Changed):
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
        from graphpass.ir.model import save

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


class VerifyEach(Instrumentation):
    """After each pass: the graph is well formed, changed if and only if the pass says so, and computes the same.

    Raises from its hooks:
        PassFailedError: GP403 the pass says changed and the digest is the same, or the reverse; GP404 the model
            computes something else than the pipeline's input, or does not compile any more.
        UnsupportedError: GP310, the graph is not well formed.
    """

    def __init__(self, tell: Callable[[str], None], steps: int = 4) -> None:
        """Create an observer.

        Args:
            tell: Takes a line where a model cannot be run, so that its numbers were not compared.
            steps: Greedy steps to compare after each prefill.
        """
        self._tell = tell
        self._steps = steps
        self._reference: Model | None = None
        self._digest = ""

    def before_pipeline(self, passes: Sequence[Pass[Model]], model: Model) -> None:  # noqa: D102, ARG002
        self._reference = model.clone()

    def before_pass(self, step: Pass[Model], model: Model) -> None:  # noqa: D102, ARG002
        self._digest = model.digest()

    def after_pass(self, step: Pass[Model], model: Model, result: PassResult) -> None:  # noqa: D102
        model.validate()
        changed = model.digest() != self._digest
        if changed != isinstance(result, Changed):
            word = type(result).__name__.lower()
            truth = "differs from before" if changed else "is the same as before"
            raise PassFailedError("GP403", f"reported {word}, but the model {truth}", "this is a bug of the pass")
        if changed:
            self._compare(step, model)

    def _compare(self, step: Pass[Model], model: Model) -> None:
        from graphpass.verify import compare

        assert self._reference is not None
        try:
            comparison = compare(self._reference, model, steps=self._steps)
        except UnsupportedError as error:
            if error.id == "GP321" and _opens(self._reference):
                raise PassFailedError("GP404", f"no runtime takes the result: {error.message}", error.hint) from error
            self._tell(f"{step.name}: numbers not compared: {error.message}")
            return
        if comparison.divergence is not None:
            hint = "this is a bug of the pass; graphpass verify compares two models in detail"
            raise PassFailedError("GP404", f"computes something else than the input: {comparison.divergence}", hint)


def _opens(model: Model) -> bool:
    from graphpass.runtime import open_session

    try:
        open_session(model)
    except UnsupportedError:
        return False
    return True


def _operators(model: Model) -> Counter[str]:
    return Counter(node.op for node in model.graph.nodes)
