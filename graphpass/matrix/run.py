"""Run a matrix and judge its results."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from graphpass.errors import UsageError

from .cells import Cell, CellResult, Problem
from .config import FailOn
from .execution import Executor
from .remembering import remembered

_INTERNAL, _INTERRUPTED = 70, 130

_BASELINE_FORM = 1

#: Keys of a finding in a baseline file; the fingerprint counts, the others are for people.
_KEPT = ("fingerprint", "cell", "rule", "node", "message")

Verdict = Literal["ok", "warning", "known", "failed", "cancelled"]


class Progress:
    """Observes a run; every hook does nothing by default."""

    def begin(self, cells: Sequence[Cell]) -> None:
        """Take the cells, before any starts."""

    def started(self, cell: Cell) -> None:
        """Take a cell that starts."""

    def ended(self, result: CellResult) -> None:
        """Take a cell's result."""

    def end(self) -> None:
        """Take note that no cell follows."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Locates a problem in a run.

    Attributes:
        result: The result of its cell.
        problem: The problem.
        fingerprint: Its digest, the same in each run.
        known: Whether the baseline holds it.
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
    """

    results: tuple[CellResult, ...]
    baseline: frozenset[str]
    fail_on: frozenset[FailOn]
    seconds: float
    interrupted: bool = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return all problems, errors first."""
        found = [
            Finding(result, problem, fingerprint, fingerprint in self.baseline)
            for result in self.results
            for problem, fingerprint in zip(result.problems, result.fingerprints, strict=True)
        ]
        return tuple(sorted(found, key=lambda finding: ("error", "warning", "note").index(finding.problem.level)))

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
        return 1 if "failed" in verdicts.values() or "cancelled" in verdicts.values() else 0

    def verdict(self, result: CellResult) -> Verdict:
        """Judge a cell by the baseline and by the findings that fail the run."""
        if result.state == "cancelled":
            return "cancelled"
        levels = {"error", *(["warning"] if "warning" in self.fail_on else [])}
        pairs = list(zip(result.problems, result.fingerprints, strict=True))
        new = {problem.level for problem, fingerprint in pairs if fingerprint not in self.baseline}
        if new & levels:
            return "failed"
        if any(problem.level in levels for problem, _ in pairs):
            return "known"
        return "warning" if "warning" in new else "ok"

    @property
    def counts(self) -> dict[str, int]:
        """Return numbers of cells: up to date, converted, failed, known, cancelled."""
        found: Counter[str] = Counter()
        for result in self.results:
            verdict = self.verdict(result)
            found[verdict if verdict in {"failed", "known", "cancelled"} else result.state] += 1
        names = ("up to date", "converted", "failed", "known", "cancelled")
        return {name: found[name] for name in names}


def run_matrix(
    cells: Sequence[Cell],
    executor: Executor,
    progress: Progress,
    baseline: Iterable[str] = (),
    fail_on: Iterable[FailOn] = ("error",),
) -> Run:
    """Convert all cells that are not up to date, and go on past failures.

    An interrupt ends the cells that still run; finished ones stay as they are.

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
    progress.begin(cells)
    try:
        for result in _results(cells, executor, progress):
            results[result.cell.id] = result
            progress.ended(result)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.end()
    ordered = [results.get(cell.id) or CellResult(cell, "cancelled", file=cell.source) for cell in cells]
    seconds = time.perf_counter() - start
    return Run(tuple(ordered), frozenset(baseline), frozenset(fail_on), seconds, interrupted)


def _results(cells: Sequence[Cell], executor: Executor, progress: Progress) -> Iterator[CellResult]:
    waiting = []
    for cell in cells:
        if (result := remembered(cell)) is not None:
            yield result
        else:
            waiting.append(cell)
    if waiting:
        yield from executor.run(waiting, progress.started)


def read_baseline(file: Path) -> tuple[dict[str, str], ...]:
    """Return the known findings of a baseline file; none if it is not there.

    Raises:
        UsageError: GP235, it is no baseline.
    """
    try:
        told = json.loads(file.read_bytes())
        if told["baseline"] == _BASELINE_FORM:
            return tuple({key: str(finding[key]) for key in _KEPT} for finding in told["findings"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, LookupError, TypeError):
        pass
    raise UsageError("GP235", f"{file} is no baseline of graphpass", "write it anew with --update-baseline")


def baseline_of(run: Run, others: Iterable[dict[str, str]]) -> dict[str, Any]:
    """Return the object of a baseline file: errors and warnings, in an order that stays.

    Args:
        run: The run.
        others: Known findings of cells that did not run.
    """
    findings = [finding for finding in run.findings if finding.problem.level != "note"]
    told = [*others]
    told += [
        {
            "fingerprint": finding.fingerprint,
            "cell": finding.result.cell.id,
            "rule": finding.problem.rule,
            "node": finding.problem.node,
            "message": finding.problem.message.splitlines()[0],
        }
        for finding in findings
    ]
    return {"baseline": _BASELINE_FORM, "findings": sorted(told, key=lambda one: (one["cell"], one["fingerprint"]))}
