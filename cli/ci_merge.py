"""``graphpass ci merge-reports``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .ci_reports import publish, report_files, report_options
from .console import Console, console_command, format_option
from .models import PATH


@console_command("merge-reports")
@click.argument("parts", type=PATH, nargs=-1, required=True)
@report_options
@format_option("text", "json")
def merge_command(console: Console, parts: tuple[Path, ...], form: str, **reports: Path | None) -> None:
    """Merge JSON reports of shards into reports of the whole matrix.

    PARTS are files written by --report-json. If a cell is in several, the result in the last file counts. The exit code
    is that of a run of all cells.
    """
    from graphpass.matrix.merging import merged

    files = report_files(reports, lambda _: None)
    run = merged(parts)
    publish(console, run, files, form)
    if run.exit_code:
        raise click.exceptions.Exit(run.exit_code)


class WithMerge(click.Command):
    """Runs `merge_command` if the first argument is ``merge-reports``."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] == merge_command.name:
            return merge_command.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)
