"""Options of commands that write a result."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import click

from graphpass.jobs.job import Job

from .models import PATH, cache_option

Function = TypeVar("Function", bound=Callable[..., Any])


def job_options(*, output: str, verify: bool, pipeline: bool = True) -> Callable[[Function], Function]:
    """Return a decorator that adds the options of a `Job`, and passes the job.

    Args:
        output: Help text of ``--output``.
        verify: Default of ``--verify``.
        pipeline: Whether to add the options that observe passes and reuse or replace earlier results.
    """
    options = [
        click.argument("model", type=PATH),
        click.argument("place", type=PATH, required=False, metavar="[OUTPUT]"),
        click.option("-o", "--output", type=PATH, help=f"{output} Alternative to OUTPUT."),
        click.option(
            "--verify/--no-verify", default=verify, show_default=True, help="Compare the result with the input first."
        ),
        cache_option,
        click.option(
            "--weights",
            type=click.Choice(["auto", "share", "copy"]),
            default="auto",
            show_default=True,
            help="Copy the input's weight file, or share it by a hard link and append new constants to it.",
        ),
    ]
    if pipeline:
        flags = {
            "--if-changed": "Do nothing if OUTPUT is the result of the same input, options and versions.",
            "--replace": "Remove files of an earlier result, for example of another target, from OUTPUT.",
            "--print-changed": "Print the lines of the text form that each pass removed and added.",
            "--print-after-all": "Print the text form after each pass.",
            "--verify-each": "Verify after each pass, and name the first wrong one.",
            "--time-passes": "Report the time of each pass and analysis, and the peak memory.",
        }
        options += [click.option(name, is_flag=True, help=text) for name, text in flags.items()]
        dump = "Write the model after each pass into this folder."
        options.append(click.option("--dump", "--dump-dir", "dump_dir", type=PATH, metavar="DIR", help=dump))

    def decorate(command: Function) -> Function:
        @functools.wraps(command)
        def with_job(*arguments: Any, **options: Any) -> Any:
            if (place := options.pop("place")) is not None and options["output"] is not None:
                raise click.UsageError("the output is given twice: as OUTPUT and with -o", click.get_current_context())
            options["output"] = place or options["output"]
            if options["output"] is None:
                raise click.UsageError("Missing argument 'OUTPUT', or option '-o'", click.get_current_context())
            job = Job(**{field.name: options.pop(field.name) for field in fields(Job) if field.name in options})
            return command(*arguments, job, **options)

        made: Any = with_job
        for option in reversed(options):
            made = option(made)
        return made  # type: ignore[no-any-return]

    return decorate
