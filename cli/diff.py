"""``graphpass diff``."""

from __future__ import annotations

from pathlib import Path

import click

from .console import Console, console_command, format_option
from .models import PATH


@console_command("diff", limited=True)
@click.argument("models", type=PATH, nargs=-1, metavar="A B")
@format_option("text", "json", "html")
@click.option("--all", "unfolded", is_flag=True, help="Print every change, even if there are many.")
@click.option(
    "--textconv",
    "listed",
    type=PATH,
    metavar="FILE",
    help="Print one file as text that git can compare line by line, instead of a comparison.",
)
def command(console: Console, models: tuple[Path, ...], form: str, unfolded: bool, listed: Path | None) -> None:
    """List the differences between two models.

    A and B are each an .onnx file, an .xml file, or a folder with one of them; they may be of different formats.
    Compares inputs, outputs, caches, operators, metadata, and weights by their contents. Exits with 0 if the models are
    the same, with 1 if they differ.

    \b
    As a git textconv:
      git config diff.graphpass.textconv "graphpass diff --textconv"
      echo "*.xml diff=graphpass"  >> .gitattributes
      echo "*.onnx diff=graphpass" >> .gitattributes
    """  # noqa: D301 - click keeps the lines of a paragraph after this character
    if len(models) != (2 if listed is None else 0):
        raise click.UsageError("expected two models, or --textconv FILE", click.get_current_context())
    if listed is not None:
        from graphpass.reports.diff.listing import list_file

        console.result(list_file(listed))
        return
    from graphpass.api.diff import diff

    before, after = models
    result = diff(before, after, watch=console)
    if form == "html":
        console.page(result.to_html(str(before), str(after)))
    else:
        console.report(form, lambda: result.text(unfolded=unfolded), result.to_json)
    if not result.same:
        raise click.exceptions.Exit(1)
