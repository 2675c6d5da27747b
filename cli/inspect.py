"""``graphpass inspect``."""

from __future__ import annotations

from pathlib import Path

import click

from .console import Console, pass_console, talk_options
from .models import load_model


@click.command("inspect")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="How to print it.")
@talk_options
@pass_console
def command(console: Console, model: Path, form: str) -> None:
    """Tell what a model holds: inputs, outputs, caches, attention.

    MODEL is an .onnx file, an .xml file, or a folder that holds one of them. With --verbose the
    text names every cache and the evidence for what it is called.
    """
    loaded = load_model(model, console)

    from graphpass.analysis.caches import analyze_caches

    from .inventory import as_json, as_text

    with console.activity("analyzing"):
        inventory = analyze_caches(loaded)
    if form == "json":
        import json

        console.result(json.dumps(as_json(loaded, inventory), indent=2))
    else:
        console.result(as_text(loaded, inventory, details=console.verbose))
