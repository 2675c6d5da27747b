"""``graphpass inspect``."""

from __future__ import annotations

from pathlib import Path

import click

from .console import Console, pass_console, talk_options
from .models import cache_option, load_model
from .paths import PATH
from .results import refuse_input


@click.command("inspect")
@click.argument("model", type=PATH)
@click.option("--all", "unfolded", is_flag=True, help="Tell every cache by itself, with the evidence for what it is.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="How to print it.")
@click.option("--html", "page", type=PATH, help="Also write a report to look at: one file.")
@cache_option
@talk_options
@pass_console
def command(
    console: Console, model: Path, unfolded: bool, form: str, page: Path | None, declared: tuple[str, ...]
) -> None:
    """Tell what a model holds: inputs, outputs, caches, attention.

    MODEL is an .onnx file, an .xml file, or a folder that holds one of them. Layers whose caches
    are alike share a line. The text ends with what other programs take the caches for, by their own
    rules, and with warnings. `graphpass why MODEL CACHE` reasons about one cache.
    """
    loaded = load_model(model, console, declared)
    if page is not None:
        refuse_input(loaded, page)

    from graphpass.analysis.caches.inventory import analyze_caches
    from graphpass.targets.consumers import view_caches

    with console.activity("analyzing"):
        inventory = analyze_caches(loaded)
        views = view_caches(loaded, inventory)
    if page is not None:
        from graphpass.reports import write

        write(loaded, inventory, page, title=str(model))
    if form == "json":
        import json

        from .inventory_json import as_json

        console.result(json.dumps(as_json(loaded, inventory, views), indent=2))
    else:
        from .inventory import as_text

        console.result(as_text(loaded, inventory, views, unfolded=unfolded))
