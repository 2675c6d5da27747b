"""Shrink a model and a pipeline to the smallest case that still fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from graphpass.engine.manager import PassManager
from graphpass.error_catalog import explain_error
from graphpass.errors import GraphpassError, UnsupportedError, UsageError
from graphpass.ir.text.printer import statements_of
from graphpass.jobs.reduce.failing import Failing
from graphpass.jobs.reduce.oracle import Oracle
from graphpass.jobs.reduce.reducer import Reducer
from graphpass.progress import stage
from graphpass.verify.evaluate import step_for

if TYPE_CHECKING:
    from graphpass.engine.passes import Pass
    from graphpass.ir.model import Model

#: Largest constant, in elements, that is kept if the failure does not occur with noise in its place.
_TABLES = 4096


@dataclass(frozen=True)
class Reduction:
    """The smallest failing case.

    Attributes:
        case: The case.
        failure: Description of the failure.
        nodes: Number of operators before the search.
        trials: Number of cases tried.
    """

    case: Failing
    failure: str
    nodes: int
    trials: int

    def __str__(self) -> str:
        return (
            f"{self.nodes} -> {self.case.nodes} nodes, {len(self.case.passes)} passes left after {self.trials} trials\n"
            f"fails: {self.failure}"
        )


def failing_case(model: Model, passes: tuple[Pass[Any], ...], keeps: str, inline: int = 8) -> Failing:
    """Return a model as a case, with weights replaced by noise.

    Args:
        model: The input of the pipeline.
        passes: The pipeline.
        keeps: The failure to keep, as in `reduce_model`.
        inline: Largest constant, in elements, that is kept.
    """
    statements = statements_of(model.graph, inline=inline)
    opset = 21
    if model.dialect == "onnx":
        from graphpass.dialects.onnx.model import OnnxModel
        from graphpass.dialects.onnx.walk import opset_of

        assert isinstance(model, OnnxModel)
        opset = opset_of(model.proto)
    try:
        inputs = step_for(model)
    except UnsupportedError:
        inputs = {}
    return Failing(statements, model.dialect, opset, passes, keeps, inputs=inputs)


def reduce_model(
    model: Model, passes: tuple[Pass[Any], ...], keeps: str, *, seconds: float, note: Callable[[str], None]
) -> Reduction:
    """Shrink a model and a pipeline that fails on it.

    Args:
        model: The model.
        passes: The pipeline.
        keeps: The failure to keep: the id of an error, ``different`` or ``slow``.
        seconds: Time limit of the search, in seconds.
        note: Receives a line after each step of the search.

    Returns:
        The smallest case found in the time.

    Raises:
        UsageError, UnsupportedError: As `reproduce`.
    """
    oracle = Oracle()
    with stage("reproducing the failure"):
        case = reproduce(model, passes, keeps, oracle)
    nodes = case.nodes
    with stage("reducing the pipeline"):
        case = _with_fewer_passes(case, oracle)
        note(f"passes: {', '.join(step.name for step in case.passes)}")
    with stage("reducing the model"):
        # A new oracle: with fewer passes, outputs may be comparable on arrays, which is faster.
        oracle = Oracle()
        oracle.failure(case)
        reducer = Reducer(case, oracle, seconds, note)
        case = reducer.run()
    failure = oracle.failure(case)
    assert failure is not None
    return Reduction(case, failure, nodes, reducer.trials)


def reproduce(model: Model, passes: tuple[Pass[Any], ...], keeps: str, oracle: Oracle) -> Failing:
    """Return a failing case of a model, with weights replaced by noise.

    Args:
        model: The input of the pipeline.
        passes: The pipeline.
        keeps: The failure to keep, as in `reduce_model`.
        oracle: Runs the case; later candidates are compared with this failure.

    Raises:
        UsageError: GP275, the pipeline does not fail in this way; GP216, there is no error of this id.
        UnsupportedError: GP388, the text form does not support the model.
    """
    _check_failure(keeps)
    for inline in (8, _TABLES):
        case = failing_case(model, passes, keeps, inline)
        try:
            failure = oracle.failure(case)
        except UsageError as error:
            hint = "select-branch and inline-functions remove bodies and functions"
            message = f"the text form does not support the model: {error.message}"
            raise UnsupportedError("GP388", message, hint) from error
        if failure is not None:
            return case
    hint = "weights were replaced by noise, which may hide the failure"
    raise UsageError("GP275", f"the pipeline does not fail with {keeps}: {oracle.seen}", hint)


def _check_failure(keeps: str) -> None:
    if keeps.startswith("GP"):
        explain_error(keeps)
    elif keeps not in {"different", "slow"} and not re.fullmatch(r"[A-Z]{2}\d+", keeps):  # plug-ins have other letters
        raise UsageError("GP275", f"{keeps!r} is not a failure", "expected different, slow or the id of an error")


def _with_fewer_passes(case: Failing, oracle: Oracle) -> Failing:
    """Return the case with the passes from the last possible start to the first failure."""
    starts = [case]
    model = case.model()
    for step in case.passes[:-1]:
        try:
            model = PassManager([step]).run(model).model
        except GraphpassError:
            break
        failing = failing_case(model, case.passes[len(starts) :], case.keeps)
        kept = {statement.results[0] for statement in failing.statements if statement.kind == "Parameter"}
        starts.append(
            replace(
                failing,
                inputs={**failing.inputs, **{name: array for name, array in case.inputs.items() if name in kept}},
            )
        )
    low, high = 0, len(starts) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fails(starts[middle], oracle) else (low, middle - 1)
    case = starts[low]
    for length in range(1, len(case.passes)):
        shorter = replace(case, passes=case.passes[:length])
        if _fails(shorter, oracle):
            return shorter
    return case


def _fails(case: Failing, oracle: Oracle) -> bool:
    try:
        return oracle.failure(case) is not None
    except (GraphpassError, RuntimeError, ValueError):
        return False
