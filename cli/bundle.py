"""``graphpass bundle``."""

from __future__ import annotations

from pathlib import Path

import click

from .completion import complete_passes
from .console import Console, console_command
from .models import PATH
from .run import read_passes


@console_command("bundle", limited=True)
@click.argument("model", type=PATH)
@click.option("-o", "--output", type=PATH, help="The zip file to write.")
@click.option("-p", "--pipeline", "text", shell_complete=complete_passes, help="The passes, if MODEL is a model.")
@click.option(
    "--keeps", default="different", show_default=True, help="The failure, as for graphpass reduce, if MODEL is a model."
)
@click.option("--replay", "is_replay", is_flag=True, help="Run the case of a bundle instead.")
def command(console: Console, model: Path, output: Path | None, text: str | None, keeps: str, is_replay: bool) -> None:
    """Pack a failing case with versions, command and log into one file, without weights.

    MODEL is a case written by graphpass reduce, or a model on which the pipeline of -p fails. With --replay, MODEL is a
    bundle: its case is run, and the exit code is 0 if the failure occurs again, else 1.
    """
    from graphpass.api.reduce import bundle, replay

    if is_replay and (output is not None or text is not None):
        raise click.UsageError("--replay accepts only a bundle, without -o and -p", click.get_current_context())
    if is_replay:
        failure = replay(model)
        console.result(f"fails: {failure}" if failure else "does not fail")
        if failure is None:
            raise click.exceptions.Exit(1)
        return
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'", click.get_current_context())
    bundle(model, output, () if text is None else read_passes(text), keeps)
    console.result(str(output))
