"""``graphpass diff``."""

from __future__ import annotations

from pathlib import Path

import click

from .console import Console, pass_console, talk_options
from .models import load_model
from .paths import PATH


@click.command("diff")
@click.argument("models", type=PATH, nargs=-1, metavar="A B")
@click.option("--format", "form", type=click.Choice(["text", "json", "html"]), default="text", help="How to print it.")
@click.option("--all", "unfolded", is_flag=True, help="Tell every change, also where there are many.")
@click.option(
    "--textconv",
    "listed",
    type=PATH,
    metavar="FILE",
    help="Instead, print one file as text that git can compare line by line.",
)
@talk_options
@click.pass_context
@pass_console
def command(
    console: Console, context: click.Context, models: tuple[Path, ...], form: str, unfolded: bool, listed: Path | None
) -> None:
    """Tell how two models differ.

    A and B are each an .onnx file, an .xml file, or a folder that holds one of them; they may be of different formats.
    Told are inputs, outputs, caches, operators, metadata, and which weights are the same, by what they hold and not by
    where they lie. Exits with 0 where the models are the same, with 1 where they differ.

    \b
    As a git textconv:
      git config diff.graphpass.textconv "graphpass diff --textconv"
      echo "*.xml diff=graphpass"  >> .gitattributes
      echo "*.onnx diff=graphpass" >> .gitattributes
    """  # noqa: D301 - click keeps the lines of a paragraph behind this character
    if len(models) != (2 if listed is None else 0):
        raise click.UsageError("give two models, or --textconv and one file", context)
    if listed is not None:
        from graphpass.reports.diff.listing import list_file

        console.result(list_file(listed))
        return
    before, after = (load_model(path, console) for path in models)

    from graphpass.reports.diff import diff_models

    with console.activity("comparing"):
        difference = diff_models(before, after)
    if form == "json":
        import json

        from .difference import as_json

        console.result(json.dumps(as_json(before, after, difference), indent=2))
    elif form == "html":
        from graphpass.reports.difference import render_difference

        console.result(render_difference(difference, *map(str, models)).rstrip("\n"))
    else:
        from .difference import as_text

        console.result(as_text(before, after, difference, unfolded=unfolded))
    if not difference.same:
        context.exit(1)
