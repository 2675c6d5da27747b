"""``graphpass ci``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .ci_merge import WithMerge
from .ci_reports import publish, report_files, report_options
from .console import Console, console_command, format_option
from .interrupts import shielded
from .models import PATH

if TYPE_CHECKING:
    from graphpass.matrix.baseline import Entry
    from graphpass.matrix.cells import Cell
    from graphpass.matrix.config import Config, FailOn
    from graphpass.matrix.execution import Executor, Processes
    from graphpass.matrix.fleet import Fleet
    from graphpass.matrix.progress import Progress
    from graphpass.matrix.run import Run
    from graphpass.matrix.selection import Shard

_BASELINE = "graphpass-baseline.json"


def _shard(context: click.Context, parameter: click.Parameter, given: str | None) -> Shard | None:
    from graphpass.matrix.selection import Shard

    try:
        return None if given is None else Shard.parse(given)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


@console_command("ci", WithMerge)
@click.argument("config", type=PATH, required=False)
@click.option("--select", multiple=True, metavar="PATTERN", help="Take cells of this name alone: 'llama*:npu'.")
@click.option("--last-failed", is_flag=True, help="Take cells alone that failed when they last ran here.")
@click.option("--shard", metavar="N/COUNT", callback=_shard, help="Take one of several parts of the cells: 1/4.")
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Cells at a time; the number of cores by default.")
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
    help="Further tries of a cell after an error of a storage, or after its process was killed from outside.",
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
@click.option("--strict-baseline", is_flag=True, help="Fail if entries of the baseline do not occur any more.")
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

    CONFIG is a graphpass.toml, a pyproject.toml with [tool.graphpass], or a folder that holds one; else this folder and
    those above it are searched. Each model is converted for each of its targets, checked, compared with its input and
    with the last published result, in processes of their own. Cells that are up to date are skipped; one that fails
    does not stop the others. Exits with 1 if a cell fails.

    `graphpass ci merge-reports` makes one report of those of several shards.
    """
    if executor == "local" and scheduler is not None:
        raise click.UsageError("--scheduler is for --executor dask", click.get_current_context())

    from graphpass.matrix import selection
    from graphpass.matrix.config import find_config, load_config
    from graphpass.matrix.plan import cells_of

    file = find_config(config)
    chosen = load_config(file)
    every = cells_of(chosen)
    cells = selection.selected(every, select)
    if last_failed:
        cells = selection.last_failed(cells, file)
    if shard is not None:
        cells = shard.of(cells)
    if dry_run:
        _print_plan(console, cells, form)
        return

    from graphpass.matrix.baseline import read_baseline, unused_entries
    from graphpass.matrix.run import run_matrix

    def configured(name: str) -> Path | None:
        report = chosen.path_of("reports", name)
        if report is None or len(cells) == len(every):
            return report
        if shard is not None:
            return shard.file(report)
        console.note(f"{report} is left alone: {len(cells)} of {len(every)} cells run")
        return None

    files = report_files(reports, configured)
    known_file = baseline or chosen.path_of("baseline") or chosen.folder / _BASELINE
    known = read_baseline(known_file)
    fingerprints = [finding["fingerprint"] for finding in known]
    local = executor == "local"
    runner: Executor = _executor(chosen, jobs, memory, retries) if local else _fleet(scheduler, retries, jobs, memory)
    run = run_matrix(cells, runner, _progress(console, len(cells)), fingerprints, {*chosen.fail_on, *fail_on})
    names = {cell.id for cell in every}
    with shielded():
        if update_baseline and not run.interrupted:
            run = _update(run, known_file, [entry for entry in known if entry["cell"] in names])
        else:
            run = replace(run, unused=unused_entries(known, run.results, names), strict_baseline=strict_baseline)
        selection.note_failed(run, file)
        publish(console, run, files, form)
    if run.exit_code:
        raise click.exceptions.Exit(run.exit_code)


def _executor(config: Config, jobs: int | None, memory: str | None, retries: int) -> Processes:
    from graphpass.errors import UsageError
    from graphpass.machine import available_memory, usable_cores
    from graphpass.matrix.config import size_of
    from graphpass.matrix.execution import Processes

    try:
        bound = config.memory if memory is None else size_of(memory)
    except ValueError as error:
        raise UsageError("GP231", f"--memory {memory}: {error}", "write 8GiB, 500 MB or a number of bytes") from error
    number = jobs or config.content.get("jobs") or usable_cores()
    return Processes(number, bound or available_memory(), retries)


def _fleet(scheduler: str | None, retries: int, jobs: int | None, memory: str | None) -> Fleet:
    from graphpass.matrix.fleet import Fleet

    context = click.get_current_context()
    if scheduler is None:
        raise click.UsageError("--executor dask needs --scheduler ADDRESS", context)
    if jobs is not None or memory is not None:
        raise click.UsageError("--jobs and --memory are for --executor local; a cluster has its workers' own", context)
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
    told = [
        {"cell": cell.to_json(), "state": state, "reason": reason}
        for cell, state, reason in zip(cells, states, reasons, strict=True)
    ]
    counted = ", ".join(f"{states.count(state)} {state}" for state in ("up to date", "to convert") if state in states)
    count = f"{len(cells)} {'cell' if len(cells) == 1 else 'cells'}: {counted or 'nothing to do'}"
    console.report(form, lambda: "\n".join([*columns(rows, indent=""), "", count]), lambda: told)


def _update(run: Run, file: Path, others: Sequence[Entry]) -> Run:
    """Write a baseline, and return the run in view of it."""
    from graphpass.matrix.baseline import baseline_of
    from graphpass.matrix.reports.files import dumped
    from graphpass.storage.staging import write_whole

    ran = {result.cell.id for result in run.results if result.state != "cancelled"}
    told = baseline_of(run, [finding for finding in others if finding["cell"] not in ran])
    write_whole(file, dumped(told))
    return replace(run, baseline=frozenset(finding["fingerprint"] for finding in told["findings"]))
