"""Run pipelines for commands that write a result: options, observers, proof and report."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from graphpass.engine.instrumentation import DumpDir, Instrumentation, PrintChanged
from graphpass.errors import UnsupportedError, VerificationError
from graphpass.progress import Clock, clocked, stage

from .models import PATH, cache_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphpass.engine.manager import PipelineResult
    from graphpass.engine.passes import Pass
    from graphpass.io import Weights
    from graphpass.ir.model import Model
    from graphpass.verify import Comparison

    from .console import Console


Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Job:
    """Holds the options of a command that writes a result.

    Attributes:
        model: The input.
        output: The place to write to.
        verify: Whether to compare the result with the input first.
        declared: The user's declarations of caches.
        weights: Way of the weights to the result; see `graphpass.io.stage_model`.
        if_changed: Whether to do nothing if the result is there.
        print_changed: Whether to print the operators that each pass added and removed.
        verify_each: Whether to compare the model's numbers after each pass.
        dump_dir: A folder for the model after each pass.
        time_passes: Whether to report the times of passes and analyses apart.
    """

    model: Path
    output: Path
    verify: bool
    declared: tuple[str, ...]
    weights: Weights
    if_changed: bool = False
    print_changed: bool = False
    verify_each: bool = False
    dump_dir: Path | None = None
    time_passes: bool = False

    @property
    def noted(self) -> dict[str, Any]:
        """Return the options that the result depends on, for the manifest."""
        checks = {"verify": self.verify, "verify_each": self.verify_each}
        return checks | {"weights": self.weights, "cache": list(self.declared)}


def job_options(*, output: str, verify: bool, pipeline: bool = True) -> Callable[[Function], Function]:
    """Return the argument MODEL and the options of a `Job`, the command's second argument.

    Args:
        output: The help of ``--output``.
        verify: Whether the result is verified by default.
        pipeline: Whether the command observes its pipeline and writes a manifest.
    """
    options = [
        click.argument("model", type=PATH),
        click.option("-o", "--output", type=PATH, required=True, help=output),
        click.option(
            "--verify/--no-verify", default=verify, show_default=True, help="Compare the result with the input first."
        ),
        cache_option,
        click.option(
            "--weights",
            type=click.Choice(["auto", "share", "copy"]),
            default="auto",
            show_default=True,
            help="Copy the input's weight file, or share it: a hard link, to which new constants are appended.",
        ),
    ]
    if pipeline:
        flags = {
            "--if-changed": "Do nothing if the result of the same input, options and versions is there.",
            "--print-changed": "Print the operators that each pass added and removed.",
            "--verify-each": "Check the graph and compare its numbers after each pass.",
            "--time-passes": "Report the times of passes and analyses apart, and the memory at its peak.",
        }
        options += [click.option(name, is_flag=True, help=text) for name, text in flags.items()]
        options.append(click.option("--dump-dir", type=PATH, help="Write the model after each pass into this folder."))

    def decorate(command: Function) -> Function:
        @functools.wraps(command)
        def with_job(*arguments: Any, **given: Any) -> Any:
            job = Job(**{one.name: given.pop(one.name) for one in fields(Job) if one.name in given})
            return command(*arguments, job, **given)

        made: Any = with_job
        for option in reversed(options):
            made = option(made)
        return made  # type: ignore[no-any-return]

    return decorate


def run_pipeline(
    passes: Sequence[Pass[Any]], model: Model, console: Console, job: Job
) -> tuple[PipelineResult, list[str]]:
    """Run passes as the options ask.

    Returns:
        The result, and the report: the pipeline's text, the outcome and time of each pass, notes.
    """
    from graphpass.engine.manager import PassManager
    from graphpass.engine.pipeline import format_passes
    from graphpass.reports.text import columns, time_table
    from graphpass.verify.each import VerifyEach

    observers: list[Instrumentation] = []
    if job.verify_each:
        observers.append(VerifyEach(console.note))
    if job.dump_dir is not None:
        observers.append(DumpDir(job.dump_dir))
    if job.print_changed:
        observers.append(PrintChanged(lambda line: click.echo(line, err=True)))
    clock = Clock()
    with clocked(clock) if job.time_passes else contextlib.nullcontext():
        result = PassManager(passes, observers).run(model)
    rows = [(record.step.name, f"{record.seconds:.3f} s", record.outcome) for record in result.records]
    total = sum(record.seconds for record in result.records)
    report = [f"pipeline  {format_passes(passes)}", *columns([*rows, ("total", f"{total:.3f} s", "")])]
    report += [f"  note: {record.step.name}: {note}" for record in result.records for note in record.notes]
    if job.time_passes:
        report += ["", *time_table(clock.timings)]
    return result, report


def prove(comparing: Callable[[], Comparison], hint: str) -> Comparison:
    """Compare a result with its input.

    Args:
        comparing: Compares them.
        hint: Advice if they do not compute the same.

    Raises:
        VerificationError: GP601, they do not compute the same.
        UnsupportedError: One of them cannot be run here.
    """
    with stage("verifying"):
        try:
            comparison = comparing()
        except UnsupportedError as error:
            message = f"the result cannot be verified: {error.message}"
            raise UnsupportedError(error.id, message, "--no-verify writes it without proof") from error
    if not comparison.passed:
        reason = f"the result does not compute the same as the input\n{comparison.summary()}"
        raise VerificationError("GP601", reason, f"nothing was written; {hint}--no-verify writes it all the same")
    return comparison
