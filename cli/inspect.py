"""``graphpass inspect``."""

from __future__ import annotations

from pathlib import Path

import click

from graphpass.jobs.result import refuse_input

from .console import Console, console_command, format_option
from .models import PATH, cache_option


@console_command("inspect", limited=True)
@click.argument("model", type=PATH)
@click.option("--all", "unfolded", is_flag=True, help="Print a line for each cache, with the evidence for its kind.")
@format_option("text", "json")
@click.option("--html", "page", type=PATH, help="Also write an HTML report, one file.")
@cache_option
def command(
    console: Console, model: Path, unfolded: bool, form: str, page: Path | None, declared: tuple[str, ...]
) -> None:
    """Report inputs, outputs, caches and attention of a model.

    MODEL is an .onnx file, an .xml file, or a folder with one of them. Layers with equal caches share a line. The
    text ends with the caches as other programs classify them by their own rules, and warnings. `graphpass why MODEL
    CACHE` explains one cache.
    """
    from graphpass.api.inspect import inspect
    from graphpass.storage.staging import check_writable, write_whole

    if page is not None:
        check_writable(page)
    inspection = inspect(model, caches=declared, watch=console)
    if page is not None:
        refuse_input(inspection.model, page)
        write_whole(page, inspection.to_html(str(model)))
    console.report(form, lambda: inspection.text(unfolded=unfolded), inspection.to_json)
