"""``graphpass ci``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .console import Console, console_command, format_option
from .models import PATH

if TYPE_CHECKING:
    from graphpass.matrix.cells import Cell
    from graphpass.matrix.config import Config, FailOn
    from graphpass.matrix.execution import Executor, Processes
    from graphpass.matrix.fleet import Fleet
    from graphpass.matrix.run import Progress, Run

Function = TypeVar("Function", bound=Callable[..., Any])

_REPORTS = {
    "json": "JSON, by the schema ci.json.",
    "junit": "JUnit XML.",
    "sarif": "SARIF 2.1.0, for code scanning.",
    "html": "One page to look at.",
    "markdown": "Markdown, as for summaries of jobs.",
}

_BASELINE = "graphpass-baseline.json"


def _report_options(command: Function) -> Function:
    for name, form in reversed(_REPORTS.items()):
        command = click.option(f"--report-{name}", type=PATH, metavar="FILE", help=f"Also write {form}")(command)
    return command


@console_command("ci")
@click.argument("config", type=PATH, required=False)
@click.option("--select", multiple=True, metavar="PATTERN", help="Take cells of this name alone: 'llama*:npu'.")
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Cells at a time; the number of cores by default.")
@click.option(
    "--executor",
    type=click.Choice(["local", "dask"]),
    default="local",
    help="Run cells in processes here, or on a Dask cluster; needs graphpass[dask].",
)
@click.option("--scheduler", metavar="ADDRESS", help="The cluster's scheduler: tcp://host:8786.")
@click.option(
    "--retries", type=click.IntRange(min=0), help="Further tries of a cell that a storage failed; 2 by default."
)
@click.option("--memory", metavar="SIZE", help="Memory of all cells together: 8GiB; what is free by default.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "changed"]),
    multiple=True,
    help="Findings that fail the run besides errors; changed keeps results that would change.",
)
@click.option("--dry-run", is_flag=True, help="Print the cells and convert none.")
@click.option("--baseline", type=PATH, metavar="FILE", help="Known findings, which do not fail the run.")
@click.option("--update-baseline", is_flag=True, help="Write the findings of this run to the baseline.")
@_report_options
@format_option("text", "json")
def command(
    console: Console,
    config: Path | None,
    select: tuple[str, ...],
    jobs: int | None,
    executor: str,
    scheduler: str | None,
    retries: int | None,
    memory: str | None,
    fail_on: tuple[FailOn, ...],
    dry_run: bool,
    baseline: Path | None,
    update_baseline: bool,
    form: str,
    **reports: Path | None,
) -> None:
    """Convert a matrix of models and targets, and report on it.

    CONFIG is a graphpass.toml, a pyproject.toml with [tool.graphpass], or a folder that holds one; else this folder and
    those above it are searched. Each model is converted for each of its targets, checked, compared with its input and
    with the last published result, in processes of their own. Cells that are up to date are skipped; one that fails
    does not stop the others. Exits with 1 if a cell fails.
    """
    if executor == "local" and (scheduler is not None or retries is not None):
        raise click.UsageError("--scheduler and --retries are for --executor dask", click.get_current_context())

    from graphpass.matrix.config import find_config, load_config
    from graphpass.matrix.plan import cells_of

    chosen = load_config(find_config(config))
    cells = cells_of(chosen, select)
    if dry_run:
        _print_plan(console, cells, form)
        return

    from graphpass.matrix.reports.files import write_reports
    from graphpass.matrix.reports.plain import as_json, as_text
    from graphpass.matrix.run import read_baseline, run_matrix
    from graphpass.storage.staging import check_writable

    given = {name: reports[f"report_{name}"] or chosen.path_of("reports", name) for name in _REPORTS}
    files = {name: file for name, file in given.items() if file is not None}
    for file in files.values():
        check_writable(file)
    known_file = baseline or chosen.path_of("baseline") or chosen.folder / _BASELINE
    known = read_baseline(known_file)
    fingerprints = [finding["fingerprint"] for finding in known]
    local = executor == "local"
    runner: Executor = _executor(chosen, jobs, memory) if local else _fleet(scheduler, retries, jobs, memory)
    run = run_matrix(cells, runner, _progress(console, len(cells)), fingerprints, {*chosen.fail_on, *fail_on})
    if update_baseline and not run.interrupted:
        run = _update(run, known_file, known if select else ())
    root = Path(os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR") or Path.cwd())
    write_reports(run, files, root)
    console.report(form, lambda: as_text(run), lambda: as_json(run))
    _tell_github(run, root)
    if run.exit_code:
        raise click.exceptions.Exit(run.exit_code)


def _executor(config: Config, jobs: int | None, memory: str | None) -> Processes:
    from graphpass.errors import UsageError
    from graphpass.machine import available_memory, usable_cores
    from graphpass.matrix.config import size_of
    from graphpass.matrix.execution import Processes

    try:
        bound = config.memory if memory is None else size_of(memory)
    except ValueError as error:
        raise UsageError("GP231", f"--memory {memory}: {error}", "write 8GiB, 500 MB or a number of bytes") from error
    number = jobs or config.content.get("jobs") or usable_cores()
    return Processes(number, bound or available_memory())


def _fleet(scheduler: str | None, retries: int | None, jobs: int | None, memory: str | None) -> Fleet:
    from graphpass.matrix.fleet import Fleet

    context = click.get_current_context()
    if scheduler is None:
        raise click.UsageError("--executor dask needs --scheduler ADDRESS", context)
    if jobs is not None or memory is not None:
        raise click.UsageError("--jobs and --memory are for --executor local; a cluster has its workers' own", context)
    return Fleet(scheduler) if retries is None else Fleet(scheduler, retries)


def _progress(console: Console, cells: int) -> Progress:
    from graphpass.matrix.run import Progress

    if console.quiet:
        return Progress()
    from .ci_progress import LiveTable, PlainLines
    from .watch import can_draw

    return LiveTable(cells, sys.stderr) if can_draw(sys.stderr) else PlainLines(cells, console)


def _print_plan(console: Console, cells: Sequence[Cell], form: str) -> None:
    from graphpass.matrix.remembering import remembered
    from graphpass.reports.text import columns

    states = ["up to date" if remembered(cell) else "to convert" for cell in cells]
    rows = [(cell.id, state, f"{cell.source} -> {cell.output}") for cell, state in zip(cells, states, strict=True)]
    told = [{"cell": cell.to_json(), "state": state} for cell, state in zip(cells, states, strict=True)]
    count = f"{states.count('to convert')} of {len(states)} cells to convert; contents decide if files are newer"
    console.report(form, lambda: "\n".join([*columns(rows, indent=""), "", count]), lambda: told)


def _update(run: Run, file: Path, others: Sequence[dict[str, str]]) -> Run:
    """Write a baseline, and return the run in view of it."""
    from graphpass.matrix.reports.files import dumped
    from graphpass.matrix.run import baseline_of
    from graphpass.storage.staging import write_whole

    ran = {result.cell.id for result in run.results}
    told = baseline_of(run, [finding for finding in others if finding["cell"] not in ran])
    write_whole(file, dumped(told))
    return replace(run, baseline=frozenset(finding["fingerprint"] for finding in told["findings"]))


def _tell_github(run: Run, root: Path) -> None:
    """Mark findings and add to the job's summary, if this runs in GitHub Actions."""
    from graphpass.matrix.reports.files import append
    from graphpass.matrix.reports.markdown import as_annotations, as_markdown

    if os.environ.get("GITHUB_ACTIONS") == "true" and (marked := as_annotations(run, root)):
        click.echo(marked, err=True)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        append(Path(summary), as_markdown(run))
