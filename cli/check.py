"""``graphpass check``."""

from __future__ import annotations

from pathlib import Path

import click

from .console import Console, pass_console, talk_options
from .models import cache_option, load_model
from .paths import PATH


@click.command("check")
@click.argument("model", type=PATH)
@click.option("--target", required=True, help="The target of the runtime, with options: gpu{cache=reorder}.")
@click.option(
    "--confirm/--no-confirm", default=True, show_default=True, help="Try the runtime, if that is possible here."
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Form of the output.")
@cache_option
@talk_options
@click.pass_context
@pass_console
def command(
    console: Console,
    context: click.Context,
    model: Path,
    target: str,
    confirm: bool,
    form: str,
    declared: tuple[str, ...],
) -> None:
    """Predict how a target's runtime treats a model, and try it.

    MODEL is an .onnx file, an .xml file, or a folder that holds one of them. Prints for each attention and each cache
    whether the runtime fuses it, and if not, the first node that prevents it. Then the runtime is tried, if that is
    possible on this machine, and compared with the prediction. Exits with 1 if the target's contract does not hold.
    """
    loaded = load_model(model, console, declared)

    from graphpass.targets import check_model

    with console.activity("checking"):
        report = check_model(loaded, target, confirm=confirm)
    if form == "json":
        import json

        from .contract import as_json

        console.result(json.dumps(as_json(loaded, report), indent=2))
    else:
        from .contract import as_text

        console.result(as_text(loaded, report))
    if not report.holds:
        context.exit(1)
