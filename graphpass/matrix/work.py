"""Conversion of one cell, as run by worker processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpass.errors import GraphpassError, UnsupportedError, VerificationError, WriteError
from graphpass.jobs.job import Job, Proof
from graphpass.jobs.watch import Watch
from graphpass.progress import peak_memory
from graphpass.storage.addresses import is_address
from graphpass.storage.locking import sole_worker

from .cell_memory import draw, earlier_result, remember_cell, remembered_cell, write_pictures, write_result
from .cells import Cell, CellResult, Problem, internal_error
from .problems import problems_of_error, problems_of_outcome
from .remote import Surroundings, has_address, run_remote, why_unpublished

if TYPE_CHECKING:
    from graphpass.reports.outcome import ModelReport, Outcome


def run_cell(cell: Cell) -> CellResult:
    """Convert a cell, unless its result is up to date.

    Errors become problems of the result and are not raised. If several processes work on one output, the first converts
    and the others reuse its result. If the process is killed, the output keeps the old result, or none.

    Args:
        cell: The cell.

    Returns:
        The result; if it failed, nothing was written.
    """
    start = time.perf_counter()
    try:
        if has_address(cell):
            with contextlib.nullcontext() if is_address(cell.output) else _alone(Path(cell.output)):
                result = run_remote(cell, lambda local, around: _convert(local, start, around)[0])
        else:
            with _alone(Path(cell.output)):
                result, outcome = _convert(cell, start, Surroundings(lambda _: Path(cell.published), write_result))
                remember_cell(cell, outcome)
    except GraphpassError as error:
        result = _failed(cell, error)
    except MemoryError as error:
        result = _failed(cell, UnsupportedError("GP395", f"there is not enough memory: {error}".rstrip(": ")))
    except Exception as error:  # noqa: BLE001 - the outermost frame of a cell; other cells continue
        result = internal_error(cell, error)
    return replace(result, seconds=time.perf_counter() - start, memory=peak_memory() or None)


@contextlib.contextmanager
def _alone(output: Path) -> Iterator[None]:
    try:
        with sole_worker(output):
            yield
    except OSError as error:
        reason = f"cannot write to {output}: {error.strerror or error}"
        raise WriteError("GP501", reason, "no file was changed; choose another folder") from error


def _convert(cell: Cell, start: float, around: Surroundings) -> tuple[CellResult, Outcome]:
    from graphpass.engine.pipeline import parse, parse_target
    from graphpass.jobs.convert import convert
    from graphpass.jobs.run import run

    settings, job = cell.settings, _job_of(cell)
    gate = _Gate(cell, start, around)
    if cell.target is not None:
        target = parse_target(cell.target)
        unfused, tokenizer = settings.allow_unfused, settings.tokenizer
        outcome = convert(job, target, Watch(), allow_unfused=unfused, tokenizer=tokenizer, look=gate.look, gate=gate)
    else:
        assert cell.pipeline is not None
        outcome = run(job, parse(cell.pipeline), Watch(), look=gate.look, gate=gate)
    result = gate.result
    if result is None:
        changes = _changes(around.published(Path(cell.output)), Path(cell.output), outcome)
        result = replace(earlier_result(cell), state="up to date", changes=changes or (), changed=_if_any(changes))
    return result, outcome


def why_stale(cell: Cell) -> str | None:
    """Return the reason why a cell is stale; ``None`` if it is up to date."""
    from graphpass.engine.pipeline import parse, parse_target
    from graphpass.jobs import convert, run

    if remembered_cell(cell) is not None:
        return None
    try:
        if has_address(cell):
            return why_unpublished(cell)
        settings, job = cell.settings, _job_of(cell)
        if cell.target is None:
            assert cell.pipeline is not None
            return run.stale(job, parse(cell.pipeline))
        unfused, tokenizer = settings.allow_unfused, settings.tokenizer
        return convert.stale(job, parse_target(cell.target), allow_unfused=unfused, tokenizer=tokenizer)
    except GraphpassError as error:
        return f"{error.id}: {error.message}"


def _job_of(cell: Cell) -> Job:
    settings = cell.settings
    return Job(
        Path(cell.source),
        Path(cell.output),
        settings.verify,
        settings.caches,
        settings.weights,
        if_changed=True,
        replace=True,
        verify_each=settings.verify_each,
        proof=Proof(
            settings.steps, settings.atol, settings.rtol, settings.edits, allow=settings.allow, require=settings.require
        ),
    )


def _failed(cell: Cell, error: GraphpassError) -> CellResult:
    from graphpass.model_files import find_model

    file = cell.source
    with contextlib.suppress(GraphpassError):
        file = str(find_model(file))
    changes = error.changes if isinstance(error, _ChangedError) else ()
    problems = problems_of_error(error)
    changed = True if changes else None
    return CellResult(cell, "failed", problems, error.exit_code, file, changed=changed, changes=changes)


class _ChangedError(VerificationError):
    """Raised if a result differs from the published one, with the differences."""

    def __init__(self, id: str, message: str, hint: str | None, changes: tuple[str, ...]) -> None:  # noqa: A002
        super().__init__(id, message, hint)
        self.changes = changes


@dataclass(slots=True)
class _Gate:
    """Checks a staged result against the published one and the budgets, and writes the report."""

    cell: Cell
    start: float
    around: Surroundings
    result: CellResult | None = None
    pictures: list[dict[str, Any]] = field(default_factory=list)

    def look(self, reports: Sequence[ModelReport]) -> None:
        """Draw the models, before they are written."""
        if self.cell.settings.picture:
            self.pictures = draw(reports)

    def __call__(self, folder: Path, outcome: Outcome) -> None:
        changes = _changes(self.around.published(folder), folder, outcome)
        problems = problems_of_outcome(outcome)
        if changes:
            message = f"the result differs from the published one: {', '.join(changes)}"
            if self.cell.refuse_changes:
                hint = "the published result is unchanged; without --fail-on changed it is replaced"
                raise _ChangedError("GP603", message, hint, changes)
            problems += (Problem("GP603", "note", message),)
        seconds, memory = time.perf_counter() - self.start, peak_memory() or None
        result = CellResult(
            self.cell,
            "converted",
            problems,
            file=str(outcome.input),
            outcome=outcome.to_json(),
            changed=_if_any(changes),
            changes=changes or (),
            seconds=seconds,
            memory=memory,
        )
        _hold_to_budgets(result)
        self.around.keep(folder, result)
        if self.cell.settings.picture:
            write_pictures(folder, self.pictures)
        self.result = result


def _hold_to_budgets(result: CellResult) -> None:
    budgets, outcome = result.cell.settings.budgets, result.outcome
    summaries = [model["after"] for model in outcome["models"]]
    measured = {
        "bytes": sum(file["bytes"] for file in outcome["files"]),
        "operators": max(summary["operators"] for summary in summaries),
        "bytes_per_token": max(summary["bytes_per_token"] or 0 for summary in summaries),
        "seconds": round(result.seconds, 3),
        "memory": result.memory or 0,
    }
    over = [
        f"{name.replace('_', ' ')}: {number:,}, limit {limit:,}"
        for name, number in measured.items()
        if (limit := getattr(budgets, name)) is not None and number > limit
    ]
    if over:
        hint = "nothing was written; raise the budget, or find the cause of the growth"
        raise VerificationError("GP602", f"the result exceeds its budgets: {'; '.join(over)}", hint)


def _changes(published: Path, folder: Path, outcome: Outcome) -> tuple[str, ...] | None:
    """Return the differences from the published result; ``None`` if none is published."""
    from graphpass.io import load
    from graphpass.reports.diff import diff_models
    from graphpass.reports.difference import difference_in_short

    if folder == published:
        return ()
    changes: list[str] = []
    for graph in outcome.graphs:
        before = published / graph.name
        if not before.is_file():
            return None
        try:
            changes += difference_in_short(diff_models(load(before), load(folder / graph.name)))
        except GraphpassError as error:
            changes.append(f"the published {graph.name} cannot be compared: {error.message}")
    return tuple(changes)


def _if_any(changes: tuple[str, ...] | None) -> bool | None:
    return None if changes is None else bool(changes)
