"""``graphpass ci``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .ci_merge import WithMerge
from .ci_reports import publish, report_files, report_options
from .console import Console, console_command, format_option
from .interrupts import shielded
from .models import PATH

if TYPE_CHECKING:
    from graphpass.matrix.cells import Cell
    from graphpass.matrix.config import FailOn
    from graphpass.matrix.execution import Executor
    from graphpass.matrix.fleet import Fleet
    from graphpass.matrix.progress import Progress
    from graphpass.matrix.selection import Shard


def _shard(context: click.Context, parameter: click.Parameter, text: str | None) -> Shard | None:
    from graphpass.matrix.selection import Shard

    try:
        return None if text is None else Shard.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


@console_command("ci", WithMerge)
@click.argument("config", type=PATH, required=False)
@click.option("--select", multiple=True, metavar="PATTERN", help="Run only cells of this name: 'llama*:npu'.")
@click.option("--last-failed", is_flag=True, help="Run only cells that failed in their last run on this machine.")
@click.option("--shard", metavar="N/COUNT", callback=_shard, help="Run one of COUNT shards of the cells: 1/4.")
@click.option(
    "--jobs", "-j", type=click.IntRange(min=1), help="Cells to run in parallel; by default the number of cores."
)
@click.option(
    "--executor",
    type=click.Choice(["local", "dask"]),
    default="local",
    help="Run cells in processes here, or on a Dask cluster; needs graphpass[dask].",
)
@click.option("--scheduler", metavar="ADDRESS", help="The cluster's scheduler: tcp://host:8786.")
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Retries of a cell after a storage error or if its process was killed.",
)
@click.option("--memory", metavar="SIZE", help="Memory of all cells together: 8GiB; by default the free memory.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "changed"]),
    multiple=True,
    help="Findings that fail the run besides errors; changed: fail instead of replacing a published result.",
)
@click.option("--dry-run", is_flag=True, help="Print the cells without converting them.")
@click.option("--baseline", type=PATH, metavar="FILE", help="Known findings, which do not fail the run.")
@click.option("--update-baseline", is_flag=True, help="Write the findings of this run to the baseline.")
@click.option("--strict-baseline", is_flag=True, help="Fail if entries of the baseline no longer occur.")
@report_options
@format_option("text", "json")
def command(
    console: Console,
    config: Path | None,
    select: tuple[str, ...],
    last_failed: bool,
    shard: Shard | None,
    jobs: int | None,
    executor: str,
    scheduler: str | None,
    retries: int,
    memory: str | None,
    fail_on: tuple[FailOn, ...],
    dry_run: bool,
    baseline: Path | None,
    update_baseline: bool,
    strict_baseline: bool,
    form: str,
    **reports: Path | None,
) -> None:
    """Convert a matrix of models and targets, and report on it.

    CONFIG is a graphpass.toml, a pyproject.toml with [tool.graphpass], or a folder with one; by default the
    current folder and its parents are searched. Each cell runs in its own process: the model is converted for the
    target, checked, and compared with its input and with the last published result. Cells that are up to date are
    skipped. A failed cell does not stop the others. Exits with 1 if a cell fails.

    `graphpass ci merge-reports` merges the reports of several shards.
    """
    if executor == "local" and scheduler is not None:
        raise click.UsageError("--scheduler requires --executor dask", click.get_current_context())

    from graphpass.matrix.project import Project

    project = Project.open(config, select, last_failed=last_failed, shard=shard)
    if dry_run:
        _print_plan(console, project.cells, form)
        return

    def configured(name: str) -> Path | None:
        file = project.report_file(name)
        if file is None and (skipped := project.config.path_of("reports", name)) is not None:
            console.note(f"{skipped} is not written: only {len(project.cells)} of {len(project.every)} cells run")
        return file

    if baseline is not None and not update_baseline and not baseline.exists():
        from graphpass.errors import ReadError

        raise ReadError("GP114", f"the baseline {baseline} does not exist", "--update-baseline writes it")
    files = report_files(reports, configured)
    known = project.baseline(baseline)
    local = executor == "local"
    runner: Executor = project.processes(jobs, memory, retries) if local else _fleet(scheduler, retries, jobs, memory)
    run = project.run(runner, _progress(console, len(project.cells)), known, fail_on)
    with shielded():
        run = project.concluded(run, known, update=update_baseline, strict=strict_baseline)
        publish(console, run, files, form)
    if run.exit_code:
        raise click.exceptions.Exit(run.exit_code)


def _fleet(scheduler: str | None, retries: int, jobs: int | None, memory: str | None) -> Fleet:
    from graphpass.matrix.fleet import Fleet

    context = click.get_current_context()
    if scheduler is None:
        raise click.UsageError("--executor dask requires --scheduler ADDRESS", context)
    if jobs is not None or memory is not None:
        raise click.UsageError("--jobs and --memory require --executor local; Dask workers have their own", context)
    return Fleet(scheduler, retries)


def _progress(console: Console, cells: int) -> Progress:
    from graphpass.matrix.progress import Progress

    if console.quiet:
        return Progress()
    from .ci_progress import LiveTable, PlainLines
    from .watch import can_draw

    return LiveTable(cells, sys.stderr) if can_draw(sys.stderr) else PlainLines(cells, console)


def _print_plan(console: Console, cells: Sequence[Cell], form: str) -> None:
    from graphpass.matrix.work import why_stale
    from graphpass.reports.text import columns

    reasons = [why_stale(cell) for cell in cells]
    states = ["up to date" if reason is None else "to convert" for reason in reasons]
    rows = [
        (cell.id, state, f"{cell.source} -> {cell.output}", reason or "")
        for cell, state, reason in zip(cells, states, reasons, strict=True)
    ]
    entries = [
        {"cell": cell.to_json(), "state": state, "reason": reason}
        for cell, state, reason in zip(cells, states, reasons, strict=True)
    ]
    counted = ", ".join(f"{states.count(state)} {state}" for state in ("up to date", "to convert") if state in states)
    count = f"{len(cells)} {'cell' if len(cells) == 1 else 'cells'}: {counted or 'nothing to do'}"
    console.report(form, lambda: "\n".join([*columns(rows, indent=""), "", count]), lambda: entries)
