"""`PassManager`: runs a sequence of passes."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from graphpass.engine.instrumentation import Instrumentation
from graphpass.engine.passes import Done, Pass, PassResult, Skipped, first_line
from graphpass.errors import GraphpassError, PassFailedError, PreconditionError
from graphpass.ir.model import Model
from graphpass.ir.types import FORMATS
from graphpass.progress import advance, expect, stage, timed


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One executed pass with its result.

    Attributes:
        step: The pass.
        result: Its result.
        seconds: Duration of the pass, without instrumentation.

    Examples:
        >>> import graphpass
        >>> manager = graphpass.PassManager(graphpass.parse("fuse-functions"))
        >>> result = manager.run(graphpass.load("build/fixtures/llama/onnx"))
        >>> dict(result.records[0].result.statistics)
        {'norms fused': 5}
    """

    step: Pass[Model]
    result: PassResult
    seconds: float

    @property
    def outcome(self) -> str:
        """Return the result as one line of text."""
        if isinstance(self.result, Skipped):
            return f"skipped: {self.result.reason}"
        counted = ", ".join(f"{count} {name}" for name, count in self.result.statistics.items())
        return counted or ("changed" if self.result.changed else "unchanged")

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes for the user."""
        return () if isinstance(self.result, Skipped) else self.result.notes


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """The result of a pipeline.

    Attributes:
        model: The resulting model; the input model is unchanged.
        records: One record per pass, in order.

    Examples:
        >>> import graphpass
        >>> result = graphpass.PassManager(()).run(graphpass.load("build/fixtures/llama/onnx"))
        >>> result.records
        ()
    """

    model: Model
    records: tuple[PassRecord, ...]

    @property
    def changed(self) -> bool:
        """Return whether any pass changed the model."""
        return any(isinstance(record.result, Done) and record.result.changed for record in self.records)


class PassManager:
    """Runs passes in order on a copy of a model.

    Args:
        passes: The passes, in order.
        instrumentation: Hooks, called in this order before and in reverse order after each pass.

    Examples:
        >>> import graphpass
        >>> manager = graphpass.PassManager(graphpass.parse("to-openvino,make-stateful"))
        >>> result = manager.run(graphpass.load("build/fixtures/llama/onnx"))
        >>> result.model.dialect, graphpass.analyze_caches(result.model).stateful
        ('openvino', True)
    """

    def __init__(self, passes: Iterable[Pass[Model]], instrumentation: Iterable[Instrumentation] = ()) -> None:
        """Create a manager.

        Args:
            passes: The passes, in order.
            instrumentation: Observers, called in this order before, and in reverse order after each event.
        """
        self.passes = tuple(passes)
        self.instrumentation = tuple(instrumentation)

    def run(self, model: Model) -> PipelineResult:
        """Run all passes.

        Args:
            model: The input; it is not modified, even on failure.

        Returns:
            The resulting model and one record per pass.

        Raises:
            PreconditionError: A pass's requirement does not hold (GP301, GP302), or the pass itself refuses the model.
            PassFailedError: GP401, a pass raised; GP402, a condition that it ensures does not hold. It names the
                pass and those before it.
            MemoryError: A pass ran out of memory.
        """
        working = model.clone()
        records: list[PassRecord] = []
        for observer in self.instrumentation:
            observer.before_pipeline(self.passes, working)
        with stage("running the pipeline"), _collector_paused():
            expect(len(self.passes), "passes")
            for step in self.passes:
                advance(0, step.name)
                try:
                    working, record = self._run_one(step, working)
                except GraphpassError as error:
                    self._fail(step, error, working)
                    raise type(error)(error.id, _place(step, records) + error.message, error.hint) from error
                except MemoryError as error:  # this is not a fault of the pass
                    self._fail(step, error, working)
                    raise
                except Exception as error:
                    self._fail(step, error, working)
                    raise PassFailedError("GP401", _place(step, records) + first_line(error)) from error
                records.append(record)
                advance()
        for observer in reversed(self.instrumentation):
            observer.after_pipeline(self.passes, working)
        return PipelineResult(working, tuple(records))

    def _run_one(self, step: Pass[Model], working: Model) -> tuple[Model, PassRecord]:
        _check_requirements(step, working)
        for observer in self.instrumentation:
            observer.before_pass(step, working)
        edits, start = working.edits, time.perf_counter()
        with timed("pass", step.name):
            result, after = _inapplicable(step, working) or step.run(working), working
        seconds = time.perf_counter() - start
        if isinstance(result, Done):
            after = result.model or working
            changed = after is not working or working.edits > edits
            result = Done(result.statistics if changed else {}, result.notes, changed=changed)
            for condition in step.ensures:
                if missing := condition.missing(after):
                    raise PassFailedError("GP402", f"does not ensure {condition.name!r}: {missing}")
        for observer in reversed(self.instrumentation):
            observer.after_pass(step, after, result)
        return after, PassRecord(step, result, seconds)

    def _fail(self, step: Pass[Model], error: Exception, working: Model) -> None:
        for observer in reversed(self.instrumentation):
            observer.pass_failed(step, working, error)


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector during passes.

    Passes create no cycles, and each collection visits all nodes. For target cpu, collections took a quarter of the
    time at 80 layers of 86 nodes, and their share grows with the number of layers.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check_requirements(step: Pass[Model], model: Model) -> None:
    if step.dialect is not None and step.dialect != model.dialect:
        hint = (
            "run to-openvino before it"
            if step.dialect == "openvino"
            else "run it before to-openvino, on the ONNX model"
        )
        raise PreconditionError("GP301", f"expected {FORMATS[step.dialect]}, got {FORMATS[model.dialect]}", hint)
    for condition in step.requires:
        if missing := condition.missing(model):
            raise PreconditionError("GP302", f"requires {condition.name!r}, but {missing}", condition.hint)


def _inapplicable(step: Pass[Model], model: Model) -> Skipped | None:
    reasons = (condition.missing(model) for condition in step.only_for)
    return next((Skipped(reason) for reason in reasons if reason), None)


def _place(step: Pass[Model], records: list[PassRecord]) -> str:
    before = f" (after {', '.join(record.step.name for record in records)})" if records else ""
    return f"pass {step.name}{before}: "
