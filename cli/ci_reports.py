"""Reports of ``graphpass ci`` and ``graphpass ci merge-reports``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .console import Console
from .models import PATH

if TYPE_CHECKING:
    from graphpass.matrix.run import MatrixResults

Function = TypeVar("Function", bound=Callable[..., Any])

_REPORTS = {
    "json": "JSON of the schema ci.json.",
    "junit": "JUnit XML.",
    "sarif": "SARIF 2.1.0, for code scanning.",
    "html": "one HTML page.",
    "markdown": "Markdown, for job summaries.",
}


def report_options(command: Function) -> Function:
    """Add an option ``--report-FORMAT`` for each report.

    Returns:
        ``command`` with the options.
    """
    for name, form in reversed(_REPORTS.items()):
        command = click.option(f"--report-{name}", type=PATH, metavar="FILE", help=f"Also write {form}")(command)
    return command


def report_files(paths: Mapping[str, Path | None], configured: Callable[[str], Path | None]) -> dict[str, Path]:
    """Return the files to write, by format of the report.

    Args:
        paths: Values of `report_options`.
        configured: Returns the configured file of a report.

    Raises:
        WriteError: GP501, a file cannot be written.
    """
    from graphpass.storage.staging import check_writable

    chosen = {name: paths[f"report_{name}"] or configured(name) for name in _REPORTS}
    files = {name: file for name, file in chosen.items() if file is not None}
    for file in files.values():
        check_writable(file)
    return files


def publish(console: Console, run: MatrixResults, files: Mapping[str, Path], form: str) -> None:
    """Write the reports, print the run, and annotate it in GitHub Actions.

    Args:
        console: Prints the run.
        run: The results.
        files: The file of each report, by format.
        form: Format of the printed run: ``text`` or ``json``.

    Raises:
        WriteError: GP501, a report cannot be written.
    """
    from graphpass.matrix.reports.files import write_reports
    from graphpass.matrix.reports.plain import as_json, as_text

    root = Path(os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR") or Path.cwd())
    write_reports(run, files, root)
    console.report(form, lambda: as_text(run), lambda: as_json(run))
    _annotate_on_github(run, root)


def _annotate_on_github(run: MatrixResults, root: Path) -> None:
    """Print annotations and append to the job's summary, in GitHub Actions only."""
    from graphpass.matrix.reports.files import append
    from graphpass.matrix.reports.markdown import as_annotations, as_markdown

    if os.environ.get("GITHUB_ACTIONS") == "true" and (annotations := as_annotations(run, root)):
        click.echo(annotations, err=True)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        append(Path(summary), as_markdown(run))
