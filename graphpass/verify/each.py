"""`VerifyEach`, an observer of pipelines that compares the model's numbers after each pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.engine.instrumentation import Instrumentation
from graphpass.engine.passes import Skipped
from graphpass.errors import PassFailedError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from graphpass.engine.passes import Pass, PassResult
    from graphpass.ir.model import Model

__all__ = ["VerifyEach"]


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
        word = "skipped" if isinstance(result, Skipped) else "changed" if result.changed else "unchanged"
        if changed != (word == "changed"):
            truth = "differs from before" if changed else "is the same as before"
            raise PassFailedError("GP403", f"reported {word}, but the model {truth}", "this is a bug of the pass")
        if changed:
            self._compare(step, model)

    def _compare(self, step: Pass[Model], model: Model) -> None:
        from graphpass.verify.lockstep import compare

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
