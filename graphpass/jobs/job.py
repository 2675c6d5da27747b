"""Settings of jobs, and the steps that jobs share: running passes and comparing results."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from graphpass.engine.instrumentation import DumpDir, Instrumentation, PrintAll, PrintChanged
from graphpass.errors import PassFailedError, UnsupportedError, VerificationError
from graphpass.progress import Clock, Timing, clocked, stage

from .watch import Watch

if TYPE_CHECKING:
    from graphpass.engine.manager import PipelineResult
    from graphpass.engine.passes import Pass
    from graphpass.io import Weights
    from graphpass.ir.model import Model
    from graphpass.verify import Comparison


#: Required strength of the comparison: equal numbers, or proven for every input.
Requirement: TypeAlias = Literal["same", "proven"]


@dataclass(frozen=True, slots=True)
class Proof:
    """Settings of the comparison of a result with its input.

    Attributes:
        steps: Greedy steps after each prefill.
        atol: Absolute tolerance; ``None`` for the default of the models' element types.
        rtol: Relative tolerance; ``None`` for the same default.
        edits: Whether to also edit the caches between steps, as ``graphpass verify --edits`` does.
        budget: Time and memory for comparing whole models: ``60s,4GB``; ``None`` for the default.
        all_layers: Whether to run every layer of a comparison layer by layer, not one of each structure.
        allow: Names of nodes to accept although they compare the batch size, a row's index or token ids and the input
            does not, or although their outputs differ on random inputs.
        require: ``same``: outputs equal within the tolerance; ``proven``: equal for every input, padding excepted.

    Examples:
        >>> from graphpass import Proof
        >>> Proof(steps=4, require="proven").require
        'proven'
    """

    steps: int = 12
    atol: float | None = None
    rtol: float | None = None
    edits: bool = False
    budget: str | None = None
    all_layers: bool = False
    allow: tuple[str, ...] = ()
    require: Requirement = "same"

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            UsageError: GP250, a setting is out of range.
        """
        from graphpass.verify.request import check_numbers

        check_numbers(self.steps, self.atol, self.rtol)
        if self.budget is not None:
            from graphpass.verify.layers.budget import Budget

            Budget.parse(self.budget)

    @property
    def settings(self) -> dict[str, Any]:
        """Return the keyword arguments for `graphpass.verify.compare_within`."""
        return {name: value for name, value in asdict(self).items() if name != "require"}


@dataclass(frozen=True, slots=True)
class Job:
    """Settings of a job that writes a result.

    Attributes:
        model: The input.
        output: The file or folder to write to.
        verify: Whether to compare the result with the input before it is written.
        declared: Declarations of unknown caches: ``past_0=kv,sequence=2``.
        weights: Whether to copy or share weight files; see `graphpass.io.stage_model`.
        if_changed: Whether to skip the job if ``output`` is the result of the same input, options and versions.
        replace: Whether to remove files of an earlier result that the new one does not have.
        print_changed: Whether to print the lines of the text form that each pass removed and added.
        print_after_all: Whether to print the text form after each pass.
        verify_each: Whether to verify the model after each pass.
        dump_dir: A folder for the model after each pass.
        time_passes: Whether to report the time of each pass and analysis.
        proof: Settings of the comparison with the input.
    """

    model: Path
    output: Path
    verify: bool
    declared: tuple[str, ...]
    weights: Weights
    if_changed: bool = False
    replace: bool = False
    print_changed: bool = False
    print_after_all: bool = False
    verify_each: bool = False
    dump_dir: Path | None = None
    time_passes: bool = False
    proof: Proof = field(default_factory=Proof)

    @property
    def noted(self) -> dict[str, Any]:
        """Return the options that the result depends on, for the manifest."""
        noted = {"verify": self.verify, "verify_each": self.verify_each, "weights": self.weights}
        defaults = Proof()
        changed = {name: value for name, value in asdict(self.proof).items() if value != getattr(defaults, name)}
        # JSON has lists, not tuples.
        changed |= {"allow": list(self.proof.allow)} if self.proof.allow else {}
        return noted | {"cache": list(self.declared)} | ({"proof": changed} if changed else {})


#: Largest number of remarks in the message about a failed comparison.
_REMARKS = 3


class UnequalError(VerificationError):
    """Raised if a result computes different outputs than its input, or is not proven equal.

    Attributes:
        comparison: The failed comparison.
    """

    def __init__(self, id: str, message: str, hint: str | None, comparison: Comparison) -> None:  # noqa: A002
        super().__init__(id, message, hint)
        self.comparison = comparison


def run_passes(
    passes: Sequence[Pass[Any]], model: Model, job: Job, watch: Watch
) -> tuple[PipelineResult, tuple[Timing, ...]]:
    """Run passes with the observers that a job's settings request.

    Args:
        passes: The pipeline.
        model: The input; it is not modified.
        job: The settings.
        watch: Receives the lines that the observers print.

    Returns:
        The result, and with ``job.time_passes`` the times of passes and analyses.

    Raises:
        GraphpassError: As `graphpass.engine.manager.PassManager.run`.
        PassFailedError: As `graphpass.engine.manager.PassManager.run`, with a command that reduces the failure as hint.
    """
    from graphpass.engine.manager import PassManager
    from graphpass.engine.pipeline import format_passes
    from graphpass.verify.verify_each import VerifyEach

    observers: list[Instrumentation] = []
    if job.verify_each:
        observers.append(VerifyEach(watch.note))
    if job.dump_dir is not None:
        observers.append(DumpDir(job.dump_dir))
    if job.print_changed:
        observers.append(PrintChanged(watch.detail))
    if job.print_after_all:
        observers.append(PrintAll(watch.detail))
    clock = Clock()
    try:
        with clocked(clock) if job.time_passes else contextlib.nullcontext():
            return PassManager(passes, observers).run(model), clock.timings
    except PassFailedError as error:
        keeps = "different" if error.id == "GP404" else error.id
        command = ("graphpass", "reduce", str(model.path), "-p", format_passes(passes), "--keeps", keeps)
        hint = f"{error.hint}; " if error.hint else ""
        raise PassFailedError(error.id, error.message, f"{hint}for a report run {shlex.join(command)}") from error


def prove(comparing: Callable[[], Comparison], hint: str, require: Requirement = "same") -> Comparison:
    """Run the comparison of a result with its input, and require that it passes.

    Args:
        comparing: Runs the comparison.
        hint: Beginning of the hint if the outputs differ.
        require: See `Proof`.

    Returns:
        The comparison.

    Raises:
        UnequalError: GP601, the outputs differ; GP606, equality is not proven for every input.
        UnsupportedError: A model cannot be run on this machine.
    """
    with stage("verifying"):
        try:
            comparison = comparing()
        except UnsupportedError as error:
            message = f"the result cannot be verified: {error.message}"
            raise UnsupportedError(error.id, message, "--no-verify writes the result without a comparison") from error
    if not comparison.passed:
        summary = "\n  ".join([comparison.verdict, *comparison.remarks[:_REMARKS]])
        reason = f"the result does not compute the same as the input\n  {summary}"
        hint = f"nothing was written; {hint}--no-verify writes the result anyway"
        raise UnequalError("GP601", reason, hint, comparison)
    if require == "proven" and not comparison.is_proven:
        summary = "\n  ".join(comparison.unproven)
        reason = f"the result is not proven equal for every input\n  {summary}"
        hint = "nothing was written; without --require proven, outputs equal within the tolerance are enough"
        raise UnequalError("GP606", reason, hint, comparison)
    return comparison
