"""Running a pipeline for a command: the flags, the observers, and the report."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from graphpass.engine.instrumentation import DumpDir, Instrumentation, PrintChanged, Progress, Statistics, Timing
from graphpass.errors import UnsupportedError, VerificationError
from graphpass.verify.each import VerifyEach

from .console import Console, columns
from .paths import PATH

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from graphpass.engine.manager import PipelineResult
    from graphpass.engine.passes import Pass
    from graphpass.ir.model import Model
    from graphpass.verify import Comparison

__all__ = ["Observation", "instrument_options", "prove", "prove_by", "run_pipeline"]

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Observation:
    """What the instrumentation flags ask for."""

    print_changed: bool = False
    verify_each: bool = False
    dump_dir: Path | None = None


def instrument_options(command: Function) -> Function:
    """The options ``--print-changed``, ``--verify-each`` and ``--dump-dir``."""
    for option in (
        click.option("--dump-dir", type=PATH, help="Write the model after each pass into this folder."),
        click.option("--verify-each", is_flag=True, help="Check the graph and compare its numbers after each pass."),
        click.option("--print-changed", is_flag=True, help="Tell what operators each pass added and removed."),
    ):
        command = option(command)
    return command


def run_pipeline(
    passes: Sequence[Pass[Any]], model: Model, console: Console, observation: Observation
) -> tuple[PipelineResult, list[str]]:
    """Run passes as the flags ask.

    Returns:
        The result, and the report: the pipeline's text, what each pass did and in what time, notes.
    """
    from graphpass.engine.manager import PassManager
    from graphpass.engine.pipeline import format_passes

    timing, statistics = Timing(), Statistics()
    observers: list[Instrumentation] = [] if console.quiet else [Progress(sys.stderr)]
    if observation.verify_each:
        observers.append(VerifyEach(console.note))
    if observation.dump_dir is not None:
        observers.append(DumpDir(observation.dump_dir))
    if observation.print_changed:
        observers.append(PrintChanged(lambda line: click.echo(line, err=True)))
    result = PassManager(passes, [*observers, statistics, timing]).run(model)
    rows = [
        (name, f"{seconds:.3f} s", outcome)
        for (name, seconds), (_, outcome) in zip(timing.seconds, statistics.outcomes, strict=True)
    ]
    report = [f"pipeline  {format_passes(passes)}", *columns([*rows, ("total", f"{timing.total:.3f} s", "")])]
    report += [f"  note: {name}: {note}" for name, note in statistics.notes]
    return result, report


def prove(reference: Model, candidate: Model, console: Console) -> Comparison:
    """Compare the result of a pipeline with its input.

    Raises:
        VerificationError: GP601, they do not compute the same.
        UnsupportedError: One of them cannot be run here.
    """
    from graphpass.verify import compare

    hint = "nothing was written; --verify-each names the pass, --no-verify writes it all the same"
    return prove_by(lambda: compare(reference, candidate), console, hint)


def prove_by(comparing: Callable[[], Comparison], console: Console, hint: str) -> Comparison:
    """Compare a result with its input in some way.

    Args:
        comparing: Compares them.
        console: Where to say what is done.
        hint: What to do where they do not compute the same.

    Raises:
        VerificationError: GP601, they do not compute the same.
        UnsupportedError: One of them cannot be run here.
    """
    with console.activity("verifying"):
        try:
            comparison = comparing()
        except UnsupportedError as error:
            message = f"the result cannot be verified: {error.message}"
            raise UnsupportedError(error.id, message, "--no-verify writes it without proof") from error
    if not comparison.passed:
        reason = f"the result does not compute the same as the input\n{comparison.summary()}"
        raise VerificationError("GP601", reason, hint)
    return comparison
