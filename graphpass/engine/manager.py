"""`PassManager`, which runs a sequence of passes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.engine.passes import Done, Pass, PassResult, first_line
from graphpass.errors import GraphpassError, PassFailedError, PreconditionError
from graphpass.ir.model import Model

if TYPE_CHECKING:
    from graphpass.engine.instrumentation import Instrumentation

__all__ = ["PassManager", "PassRecord", "PipelineResult"]


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One pass that ran, and what came of it."""

    step: Pass[Model]
    result: PassResult


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """What a pipeline made.

    Attributes:
        model: The resulting model; the input model is untouched.
        records: One entry a pass, in order.
    """

    model: Model
    records: tuple[PassRecord, ...]

    @property
    def changed(self) -> bool:
        """Whether any pass changed the model."""
        return any(isinstance(record.result, Done) and record.result.changed for record in self.records)


class PassManager:
    """Runs passes in order on a copy of a model."""

    def __init__(self, passes: Iterable[Pass[Model]], instrumentation: Iterable[Instrumentation] = ()) -> None:
        """Create a manager.

        Args:
            passes: What to run.
            instrumentation: Observers, called in this order before, and in reverse order after each event.
        """
        self.passes = tuple(passes)
        self.instrumentation = tuple(instrumentation)

    def run(self, model: Model) -> PipelineResult:
        """Run all passes.

        Args:
            model: The input; it is left as it was, whatever happens.

        Returns:
            The resulting model and one record a pass.

        Raises:
            PreconditionError: A pass's requirement does not hold (GP301, GP302), or the pass itself says so.
            PassFailedError: GP401 a pass raised; GP402 a promise was not kept. It names the pass and those before it.
        """
        working = model.clone()
        records: list[PassRecord] = []
        for observer in self.instrumentation:
            observer.before_pipeline(self.passes, working)
        for step in self.passes:
            try:
                working, result = self._run_one(step, working)
            except GraphpassError as error:
                self._fail(step, error, working)
                raise _with_place(error, step, records) from error
            except MemoryError as error:  # no pass is to blame for that
                self._fail(step, error, working)
                raise
            except Exception as error:
                self._fail(step, error, working)
                raise PassFailedError("GP401", _place(step, records) + first_line(error)) from error
            records.append(PassRecord(step, result))
        for observer in reversed(self.instrumentation):
            observer.after_pipeline(self.passes, working)
        return PipelineResult(working, tuple(records))

    def _run_one(self, step: Pass[Model], working: Model) -> tuple[Model, PassResult]:
        _check_requirements(step, working)
        for observer in self.instrumentation:
            observer.before_pass(step, working)
        edits, result, after = working.edits, step.run(working), working
        if isinstance(result, Done):
            after = result.model or working
            changed = after is not working or working.edits > edits
            result = Done(result.statistics if changed else {}, result.notes, changed=changed)
            for condition in step.ensures:
                if missing := condition.missing(after):
                    raise PassFailedError("GP402", f"promised {condition.name!r}, but {missing}")
        for observer in reversed(self.instrumentation):
            observer.after_pass(step, after, result)
        return after, result

    def _fail(self, step: Pass[Model], error: Exception, working: Model) -> None:
        for observer in reversed(self.instrumentation):
            observer.pass_failed(step, working, error)


def _check_requirements(step: Pass[Model], model: Model) -> None:
    if step.dialect is not None and step.dialect != model.dialect:
        hint = "run to-openvino before it" if step.dialect == "openvino" else "it works on ONNX, before to-openvino"
        raise PreconditionError("GP301", f"takes a model in {step.dialect}, but got one in {model.dialect}", hint)
    for condition in step.requires:
        if missing := condition.missing(model):
            raise PreconditionError("GP302", f"needs {condition.name!r}, but {missing}", condition.hint)


def _place(step: Pass[Model], records: list[PassRecord]) -> str:
    before = f" (after {', '.join(record.step.name for record in records)})" if records else ""
    return f"pass {step.name}{before}: "


def _with_place(error: GraphpassError, step: Pass[Model], records: list[PassRecord]) -> GraphpassError:
    return type(error)(error.id, _place(step, records) + error.message, error.hint)
