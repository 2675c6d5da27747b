"""Verify each pass of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphpass.engine.instrumentation import Instrumentation
from graphpass.engine.passes import Pass, PassResult, Skipped
from graphpass.errors import PassFailedError, UnsupportedError
from graphpass.ir.model import Model
from graphpass.progress import stage


class VerifyEach(Instrumentation):
    """Checks after each pass that the graph is well formed and equal to the input.

    Outputs are compared with those of the pipeline's input by running the models, structures with those of the model
    before the pass. The first wrong pass is reported. The model must differ if and only if the pass reports a change.

    Raises from its hooks:
        PassFailedError: GP403, the pass reports a change and the model is equal, or the reverse; GP404, outputs differ
            from those of the pipeline's input, or the runtime does not load the model any more.
        UnsupportedError: GP310, the graph is not well formed.
    """

    def __init__(self, note: Callable[[str], None], steps: int = 4) -> None:
        """Create an instrumentation.

        Args:
            note: Receives the lines on each pass that is not proven for every input, or whose outputs are not compared.
            steps: Number of greedy steps to compare after each prefill.
        """
        self._note = note
        self._steps = steps
        self._reference: Model | None = None
        self._before: Model | None = None

    def before_pipeline(self, passes: Sequence[Pass[Model]], model: Model) -> None:  # noqa: ARG002
        self._reference = model.clone()

    def before_pass(self, step: Pass[Model], model: Model) -> None:  # noqa: ARG002
        self._before = model.clone()

    def after_pass(self, step: Pass[Model], model: Model, result: PassResult) -> None:
        assert self._before is not None
        model.validate()
        changed = model.digest() != self._before.digest()
        word = "skipped" if isinstance(result, Skipped) else "changed" if result.changed else "unchanged"
        if changed != (word == "changed"):
            truth = "differs from before" if changed else "is the same as before"
            raise PassFailedError("GP403", f"reported {word}, but the model {truth}", "this is a bug of the pass")
        if changed:
            self._compare(step, model)
            self._prove(step, self._before, model)

    def _compare(self, step: Pass[Model], model: Model) -> None:
        from graphpass.verify.compare_models import compare

        assert self._reference is not None
        try:
            with stage(f"comparing after {step.name}"):
                comparison = compare(self._reference, model, steps=self._steps)
        except UnsupportedError as error:
            if error.id == "GP321" and _opens(self._reference):
                raise PassFailedError("GP404", f"the result cannot be loaded: {error.message}", error.hint) from error
            self._note(f"{step.name}: numbers not compared: {error.message}")
            return
        if comparison.divergence is not None:
            hint = "this is a bug of the pass; graphpass verify compares two models in detail"
            raise PassFailedError("GP404", f"computes different outputs than the input: {comparison.divergence}", hint)

    def _prove(self, step: Pass[Model], before: Model, after: Model) -> None:
        from graphpass.verify.structure.proof import compare_structures

        with stage(f"proving {step.name}"):
            proof = compare_structures(before, after)
        if proof is not None and not proof.is_complete:
            self._note("\n  ".join([f"{step.name}: not proven for every input", *proof.in_words()]))


def _opens(model: Model) -> bool:
    from graphpass.runtime import open_session

    try:
        open_session(model)
    except UnsupportedError:
        return False
    return True
