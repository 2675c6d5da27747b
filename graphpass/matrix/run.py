"""Run a matrix and judge its results."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from graphpass.errors import GraphpassError

from .cell_memory import remembered_cell
from .cells import Cell, CellResult, Problem, hold_to_expectation, internal_error
from .config import FailOn
from .execution import Executor
from .progress import Progress
from .tidying import tidy

_INTERNAL, _INTERRUPTED = 70, 130

Verdict = Literal["ok", "warning", "known", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class CellFinding:
    """Locates a problem in a run.

    Attributes:
        result: The result of its cell.
        problem: The problem.
        fingerprint: Its digest, the same in each run.
        known: Whether the baseline holds it, or the configuration expects it.
    """

    result: CellResult
    problem: Problem
    fingerprint: str
    known: bool


@dataclass(frozen=True, slots=True)
class Run:
    """Holds the results of a matrix.

    Attributes:
        results: One result a cell, in the order of the configuration.
        baseline: Fingerprints of known findings.
        fail_on: Findings that fail the run.
        seconds: Time of the whole.
        interrupted: Whether the user ended it.
        unused: Entries of the baseline that do not occur any more.
        strict_baseline: Whether such entries fail the run.
    """

    results: tuple[CellResult, ...]
    baseline: frozenset[str]
    fail_on: frozenset[FailOn]
    seconds: float
    interrupted: bool = False
    unused: tuple[Mapping[str, str], ...] = ()
    strict_baseline: bool = False

    @property
    def findings(self) -> tuple[CellFinding, ...]:
        """Return all problems, errors first."""
        findings = [
            CellFinding(result, problem, fingerprint, self.is_known(result, problem, fingerprint))
            for result in self.results
            for problem, fingerprint in zip(result.problems, result.fingerprints, strict=True)
        ]
        return tuple(sorted(findings, key=lambda finding: ("error", "warning", "note").index(finding.problem.level)))

    @property
    def exit_code(self) -> int:
        """Return 0 if no cell fails, else 1.

        A cell that met a bug of graphpass makes it 70, an interrupt 130.
        """
        if self.interrupted:
            return _INTERRUPTED
        verdicts = {result.cell.id: self.verdict(result) for result in self.results}
        if any(result.exit_code == _INTERNAL for result in self.results if verdicts[result.cell.id] == "failed"):
            return _INTERNAL
        stale = self.strict_baseline and self.unused
        return 1 if stale or "failed" in verdicts.values() or "cancelled" in verdicts.values() else 0

    def is_known(self, result: CellResult, problem: Problem, fingerprint: str) -> bool:
        """Return whether a problem does not count: the baseline holds it, or it is expected."""
        return fingerprint in self.baseline or problem.rule == result.cell.expect

    def verdict(self, result: CellResult) -> Verdict:
        """Judge a cell by the baseline and by the findings that fail the run."""
        if result.state == "cancelled":
            return "cancelled"
        levels = {"error", *(["warning"] if "warning" in self.fail_on else [])}
        pairs = list(zip(result.problems, result.fingerprints, strict=True))
        new = {problem.level for problem, fingerprint in pairs if not self.is_known(result, problem, fingerprint)}
        if new & levels:
            return "failed"
        if any(problem.level in levels for problem, _ in pairs):
            return "known"
        return "warning" if "warning" in new else "ok"

    def state_of(self, result: CellResult) -> str:
        """Return the state of a cell, or its verdict if that is not its success."""
        verdict = self.verdict(result)
        return verdict if verdict in {"failed", "known", "cancelled"} else result.state

    @property
    def counts(self) -> dict[str, int]:
        """Return numbers of cells: up to date, converted, failed, known, cancelled."""
        counts = Counter(map(self.state_of, self.results))
        names = ("up to date", "converted", "failed", "known", "cancelled")
        return {name: counts[name] for name in names}


def run_matrix(
    cells: Sequence[Cell],
    executor: Executor,
    progress: Progress,
    baseline: Iterable[str] = (),
    fail_on: Iterable[FailOn] = ("error",),
) -> Run:
    """Convert all cells that are not up to date, and go on past failures.

    An interrupt ends the cells that still run; finished ones stay unchanged. If the executor itself fails, so do the
    cells that have no result by then.

    Args:
        cells: The cells.
        executor: Runs them.
        progress: Observes them.
        baseline: Fingerprints of known findings.
        fail_on: Findings that fail the run.
    """
    start = time.perf_counter()
    refuse = "changed" in fail_on
    cells = [replace(cell, refuse_changes=refuse) for cell in cells]
    results: dict[str, CellResult] = {}
    interrupted = False
    failure: CellResult | None = None
    try:
        progress.begin(cells)
        tidy(cells)
        for result in _results(cells, executor, progress):
            results[result.cell.id] = judged = hold_to_expectation(result)
            progress.ended(judged)
    except KeyboardInterrupt:
        interrupted = True
    except GraphpassError:
        raise
    except Exception as error:  # noqa: BLE001 - what has been done is to be reported
        failure = internal_error(cells[0], error)
    finally:
        progress.end()
    ordered = [results.get(cell.id) or _missing(cell, failure) for cell in cells]
    seconds = time.perf_counter() - start
    return Run(tuple(ordered), frozenset(baseline), frozenset(fail_on), seconds, interrupted)


def _missing(cell: Cell, failure: CellResult | None) -> CellResult:
    """Return the result of a cell that has none."""
    if failure is None:
        return CellResult(cell, "cancelled", file=cell.source)
    return replace(failure, cell=cell, file=cell.source)


def _results(cells: Sequence[Cell], executor: Executor, progress: Progress) -> Iterator[CellResult]:
    waiting = []
    for cell in cells:
        if (result := remembered_cell(cell)) is not None:
            yield result
        else:
            waiting.append(cell)
    if waiting:
        yield from executor.run(waiting, progress)
