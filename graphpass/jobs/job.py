"""Describe jobs, run their passes and prove their results."""

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


#: Strength of a proof that a result needs.
Requirement: TypeAlias = Literal["same", "proven"]


@dataclass(frozen=True, slots=True)
class Proof:
    """Settles the comparison of a result with its input.

    Attributes:
        steps: Greedy steps after each prefill.
        atol: Absolute tolerance; ``None`` for that of the models' types.
        rtol: Relative tolerance; the same.
        edits: Whether the caches are edited on the way.
        budget: Time and memory, as `graphpass.verify.layers.budget.Budget` reads them; ``None`` for the machine's.
        all_layers: Whether layers that are like another run as well.
        allow: Names of nodes that may make the models differ where no prompt shows it: they compare the batch size, the
            number of a row or token ids as the input does not, or differ on random numbers.
        require: ``same`` if equal numbers are enough, ``proven`` if nothing but padding may be left to numbers.

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
        """Check the settings, before models are read.

        Raises:
            UsageError: GP250, nothing can be compared like that.
        """
        from graphpass.verify.request import check_numbers

        check_numbers(self.steps, self.atol, self.rtol)
        if self.budget is not None:
            from graphpass.verify.layers.budget import Budget

            Budget.parse(self.budget)

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings of `graphpass.verify.compare_within`."""
        return {name: value for name, value in asdict(self).items() if name != "require"}


@dataclass(frozen=True, slots=True)
class Job:
    """Holds the settings of work that writes a result.

    Attributes:
        model: The input.
        output: The place to write to.
        verify: Whether to compare the result with the input first.
        declared: The user's declarations of caches.
        weights: Way of the weights to the result; see `graphpass.io.stage_model`.
        if_changed: Whether to do nothing if the result is there.
        replace: Whether a result of other files that lies there is removed.
        print_changed: Whether to print the lines of the text form that each pass removed and added.
        print_after_all: Whether to print the text form after each pass.
        verify_each: Whether to prove each pass.
        dump_dir: A folder for the model after each pass.
        time_passes: Whether to report the times of passes and analyses apart.
        proof: The comparison with the input.
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
        usual = Proof()
        changed = {name: value for name, value in asdict(self.proof).items() if value != getattr(usual, name)}
        # As JSON holds it.
        changed |= {"allow": list(self.proof.allow)} if self.proof.allow else {}
        return noted | {"cache": list(self.declared)} | ({"proof": changed} if changed else {})


#: Lines on a comparison that failed.
_REMARKS = 3


class UnequalError(VerificationError):
    """Reports a result that does not compute the same as its input.

    Attributes:
        comparison: The comparison that found it.
    """

    def __init__(self, id: str, message: str, hint: str | None, comparison: Comparison) -> None:  # noqa: A002
        super().__init__(id, message, hint)
        self.comparison = comparison


def run_passes(
    passes: Sequence[Pass[Any]], model: Model, job: Job, watch: Watch
) -> tuple[PipelineResult, tuple[Timing, ...]]:
    """Run passes as a job asks.

    Returns:
        The result, and times of passes and analyses if the job asks for them.

    Raises:
        GraphpassError: As `graphpass.engine.manager.PassManager.run`.
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
        words = ("graphpass", "reduce", str(model.path), "-p", format_passes(passes), "--keeps", keeps)
        hint = f"{error.hint}; " if error.hint else ""
        raise PassFailedError(error.id, error.message, f"{hint}for a report run {shlex.join(words)}") from error


def prove(comparing: Callable[[], Comparison], hint: str, require: Requirement = "same") -> Comparison:
    """Compare a result with its input.

    Args:
        comparing: Compares them.
        hint: Advice if they do not compute the same.
        require: See `Proof`.

    Raises:
        UnequalError: GP601, they do not compute the same; GP606, they are not proven to be equal for every input.
        UnsupportedError: One of them cannot be run here.
    """
    with stage("verifying"):
        try:
            comparison = comparing()
        except UnsupportedError as error:
            message = f"the result cannot be verified: {error.message}"
            raise UnsupportedError(error.id, message, "--no-verify writes it without proof") from error
    if not comparison.passed:
        summary = "\n  ".join([comparison.verdict, *comparison.remarks[:_REMARKS]])
        reason = f"the result does not compute the same as the input\n  {summary}"
        hint = f"nothing was written; {hint}--no-verify writes it all the same"
        raise UnequalError("GP601", reason, hint, comparison)
    if require == "proven" and not comparison.is_proven:
        summary = "\n  ".join(comparison.unproven)
        reason = f"the result is not proven to be equal for every input\n  {summary}"
        raise UnequalError("GP606", reason, "nothing was written; without --require proven numbers decide", comparison)
    return comparison
