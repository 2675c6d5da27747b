"""Check whether a pipeline still fails with the same failure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.errors import GraphpassError, UnsupportedError
from graphpass.verify.evaluate import UNABLE, accepts_feeds, difference_on, differing, evaluate

if TYPE_CHECKING:
    from graphpass.engine.instrumentation import Instrumentation
    from graphpass.ir.model import Model
    from graphpass.jobs.reduce.failing import Failing

#: Failures that are different outputs.
_DIFFERENT = frozenset({"different", "GP404", "GP601"})

#: Errors that only verification after each pass reports.
_CHECKED = frozenset({"GP310", "GP403"})

#: Token ids of a prompt, and of two decode steps.
_TOKENS = ((3, 1, 2), (0,), (1,))


class Oracle:
    """Runs pipelines on candidates, and compares each failure with that of the first candidate.

    | failure | kept if |
    | --- | --- |
    | error | its id is ``keeps`` and its cause has the same type |
    | ``different`` | the outputs differ in the comparison that found the first difference |
    | ``slow`` | the pipeline takes at least half of the time of the first |

    Outputs are compared on arrays if the result has the same inputs as the graph; else as decoders, for a prompt and
    two tokens; else by `graphpass.verify`.

    Attributes:
        seen: Description of the last pipeline's end, for messages.
    """

    def __init__(self) -> None:
        self._compare: Callable[[Failing, Model, Model], str | None] | None = None
        self._runs: bool | None = None
        self._cause: type | None = None
        self._seconds = 0.0
        self.seen = ""

    def failure(self, case: Failing) -> str | None:
        """Return a description of the failure; ``None`` for success or a different failure.

        Raises:
            UsageError: GP270, the statements are not a graph.
        """
        model = case.model()
        observers: list[Instrumentation] = []
        if case.keeps in _CHECKED:
            from graphpass.verify.verify_each import VerifyEach

            observers.append(VerifyEach(lambda _: None))
        start = time.perf_counter()
        try:
            result = PassManager(case.passes, observers).run(model).model
        except GraphpassError as error:
            self.seen = f"it ends with {error.id}: {error.message}"
            if error.id != case.keeps:
                return None
            self._cause = self._cause or type(error.__cause__)
            return str(error) if type(error.__cause__) is self._cause else None
        seconds = time.perf_counter() - start
        self.seen = f"it ends without error after {seconds:.1f} s, and the outputs agree"
        if case.keeps == "slow":
            self._seconds = self._seconds or seconds / 2
            return f"it takes {seconds:.1f} s" if seconds >= self._seconds else None
        return self._difference(case, model, result) if case.keeps in _DIFFERENT else None

    def _difference(self, case: Failing, model: Model, result: Model) -> str | None:
        for compare in (_on_arrays, _in_steps, _as_decoders) if self._compare is None else (self._compare,):
            difference = compare(case, model, result)
            if difference is not None and self._runs in {None, runs := UNABLE not in difference}:
                self._compare, self._runs = compare, runs
                return difference
        return None


def _on_arrays(case: Failing, model: Model, result: Model) -> str | None:
    feeds = case.feeds
    if any(result.graph.of_op("ReadValue")) and not any(model.graph.of_op("ReadValue")):
        try:
            result = PassManager(parse("make-stateless")).run(result).model
        except GraphpassError:
            return None
    if not (accepts_feeds(model, feeds) and accepts_feeds(result, feeds)):
        return None
    try:
        reference = evaluate(model, feeds)
    except UnsupportedError:
        return None
    kept = {port.name for port in result.outputs}
    return difference_on({name: array for name, array in reference.items() if name in kept}, result, feeds)


def _in_steps(_: Failing, model: Model, result: Model) -> str | None:
    from graphpass.runtime import open_session

    try:
        sessions = open_session(model), open_session(result)
        for step, tokens in enumerate(_TOKENS):
            left, right = (session.step([tokens]) if step else session.prefill([tokens]) for session in sessions)
            if (difference := differing("logits", left, right)) is not None:
                return f"step {step}, {difference}"
    except GraphpassError:
        return None
    return None


def _as_decoders(_: Failing, model: Model, result: Model) -> str | None:
    from graphpass.verify.compare_models import compare

    try:
        divergence = compare(model, result, steps=1).divergence
    except UnsupportedError:
        return None
    return None if divergence is None else str(divergence)
