"""``graphpass check``."""

from __future__ import annotations

from pathlib import Path

import click

from .completion import complete_targets
from .console import Console, console_command, format_option
from .models import PATH, cache_option


@console_command("check", limited=True)
@click.argument("model", type=PATH)
@click.option(
    "--target",
    required=True,
    shell_complete=complete_targets,
    help="The target of the runtime, with options: gpu{cache=reorder}.",
)
@click.option(
    "--confirm/--no-confirm", default=True, show_default=True, help="Run a trial, if this machine has the runtime."
)
@format_option("text", "json")
@cache_option
def command(console: Console, model: Path, target: str, confirm: bool, form: str, declared: tuple[str, ...]) -> None:
    """Predict how a target's runtime executes a model, and confirm it by a trial.

    MODEL is an .onnx file, an .xml file, or a folder with one of them, with an encoder and its decoder, or with
    a prefill and a decode model. Prints for each attention block and cache whether the runtime fuses it, and if not,
    the first node that prevents it. If this machine has the runtime, a trial runs the model, or both models of a pair,
    and compares the result with the prediction. Exits with 1 if the target's contract does not hold.
    """
    from graphpass.api.check import check

    result = check(model, target, confirm=confirm, caches=declared, watch=console)
    console.report(form, lambda: result.text(verbose=console.verbose), result.to_json)
    if not result.holds:
        raise click.exceptions.Exit(1)
