"""Run pipelines on models that no other test shares."""

from __future__ import annotations

from typing import Any

from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Pass, PassResult
from graphpass.engine.pipeline import parse
from graphpass.ir.model import Model


def sequence_of(*steps: Pass[Any] | str) -> tuple[Pass[Any], ...]:
    """Return the passes of steps, each of which is a pass or the text of a pipeline."""
    return tuple(each for step in steps for each in (parse(step) if isinstance(step, str) else (step,)))


def run_passes(model: Model, *steps: Pass[Any] | str) -> tuple[Any, PassResult]:
    """Return the model after the passes, and the result of the last of them; see `sequence_of`."""
    result = PassManager(sequence_of(*steps)).run(model)
    return result.model, result.records[-1].result
