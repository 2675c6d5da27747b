"""Run a matrix, and determine the verdict of each cell."""

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
    """A problem of a cell in a run.

    Attributes:
        result: The result of the cell.
        problem: The problem.
        fingerprint: Digest that identifies the problem across runs.
        known: Whether the problem is in the baseline, or expected by the configuration.
    """

    result: CellResult
    problem: Problem
    fingerprint: str
    known: bool


@dataclass(frozen=True, slots=True)
class MatrixResults:
    """The results of a matrix.

    Attributes:
        results: One result for each cell, in the order of the configuration.
        baseline: Fingerprints of known findings.
        fail_on: Findings that fail the run.
        seconds: Time of the run.
        interrupted: Whether the user interrupted the run.
        unused: Entries of the baseline that no longer occur.
        strict_baseline: Whether unused entries fail the run.
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
        """Return the exit code of the run.

        | code | meaning |
        | --- | --- |
        | 0 | no cell fails |
        | 1 | a cell fails or was cancelled, or with ``strict_baseline`` an entry is unused |
        | 70 | a cell failed by a bug in graphpass |
        | 130 | the run was interrupted |
        """
        if self.interrupted:
            return _INTERRUPTED
        verdicts = {result.cell.id: self.verdict(result) for result in self.results}
        if any(result.exit_code == _INTERNAL for result in self.results if verdicts[result.cell.id] == "failed"):
            return _INTERNAL
        stale = self.strict_baseline and self.unused
        return 1 if stale or "failed" in verdicts.values() or "cancelled" in verdicts.values() else 0

    def is_known(self, result: CellResult, problem: Problem, fingerprint: str) -> bool:
        """Return whether a problem is in the baseline, or expected by the cell.

        Args:
            result: The result of the cell.
            problem: One of its problems.
            fingerprint: The problem's entry in `CellResult.fingerprints`.
        """
        return fingerprint in self.baseline or problem.rule == result.cell.expect

    def verdict(self, result: CellResult) -> Verdict:
        """Return the verdict on a cell, from its new findings and ``fail_on``."""
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
        """Return the verdict on a cell if failed, known or cancelled, else its state."""
        verdict = self.verdict(result)
        return verdict if verdict in {"failed", "known", "cancelled"} else result.state

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of cells by state: up to date, converted, failed, known, cancelled."""
        counts = Counter(map(self.state_of, self.results))
        names = ("up to date", "converted", "failed", "known", "cancelled")
        return {name: counts[name] for name in names}


def run_matrix(
    cells: Sequence[Cell],
    executor: Executor,
    progress: Progress,
    baseline: Iterable[str] = (),
    fail_on: Iterable[FailOn] = ("error",),
) -> MatrixResults:
    """Convert all cells that are not up to date, and continue after failures.

    An interrupt ends the running cells, and keeps the results of ended cells. If the executor fails, all cells without
    a result fail.

    Args:
        cells: The cells.
        executor: Runs the cells.
        progress: Observes the cells.
        baseline: Fingerprints of known findings.
        fail_on: Findings that fail the run.

    Returns:
        A result for each cell, in order.

    Raises:
        GraphpassError: The executor raised it: GP237, it cannot be used.
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
            results[result.cell.id] = checked = hold_to_expectation(result)
            progress.ended(checked)
    except KeyboardInterrupt:
        interrupted = True
    except GraphpassError:
        raise
    except Exception as error:  # noqa: BLE001 - results so far are reported
        failure = internal_error(cells[0], error)
    finally:
        progress.end()
    ordered = [results.get(cell.id) or _missing(cell, failure) for cell in cells]
    seconds = time.perf_counter() - start
    return MatrixResults(tuple(ordered), frozenset(baseline), frozenset(fail_on), seconds, interrupted)


def _missing(cell: Cell, failure: CellResult | None) -> CellResult:
    """Return the result of a cell that did not end: ``failure``, or cancelled."""
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
