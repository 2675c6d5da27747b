"""``graphpass reduce``."""

from __future__ import annotations

from pathlib import Path

import click

from .completion import complete_passes
from .console import Console, console_command
from .models import PATH
from .run import read_passes


@console_command("reduce", limited=True)
@click.argument("model", type=PATH)
@click.option(
    "-p", "--pipeline", "text", required=True, shell_complete=complete_passes, help="The passes, as for graphpass run."
)
@click.option(
    "--keeps",
    default="different",
    show_default=True,
    help="The failure to keep: an error id such as GP312, different (other outputs) or slow.",
)
@click.option("--seconds", type=click.FloatRange(0), default=60, show_default=True, help="Time limit of the search.")
@click.option("-o", "--output", type=PATH, help="File for the case, stdout by default.")
def command(console: Console, model: Path, text: str, keeps: str, seconds: float, output: Path | None) -> None:
    """Reduce a model and a failing pipeline to the smallest case that still fails.

    MODEL is an .onnx file, an .xml file, or a folder with one of them. Weights are replaced by noise. The case is
    the smallest graph, as text, and the remaining passes; graphpass bundle packs it into one file for a report.
    """
    from graphpass.api.reduce import reduce
    from graphpass.storage.staging import check_writable, write_whole

    if output is not None:
        check_writable(output)
    reduction = reduce(model, read_passes(text), keeps, seconds=seconds, watch=console)
    if output is None:
        console.result(str(reduction.case).rstrip())
        console.note(str(reduction))
        return
    write_whole(output, str(reduction.case))
    console.result(f"{reduction}\n{output}")
