"""Report on a run as text and as JSON (``schemas/ci.json``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphpass.reports.text import columns

from ..cells import CellResult
from ..run import CellFinding, MatrixResults

#: Largest number of findings of a cell in text.
_SHOWN = 5

#: Largest number of changes from the published result in a cell's line.
_NAMED = 3


def run_in_one_line(run: MatrixResults) -> str:
    """Return ``5 cells: 4 up to date, 1 failed, in 2.1 s``."""
    counted = ", ".join(f"{count} {name}" for name, count in run.counts.items() if count) or "nothing to do"
    total = len(run.results)
    return f"{total} {'cell' if total == 1 else 'cells'}: {counted}, in {run.seconds:.1f} s"


def grid(run: MatrixResults) -> tuple[list[str], dict[str, list[CellResult | None]]]:
    """Return the targets, and each model's result for each target; ``None`` without a cell."""
    labels = list(dict.fromkeys(result.cell.label for result in run.results))
    cells = {(result.cell.model, result.cell.label): result for result in run.results}
    models = dict.fromkeys(result.cell.model for result in run.results)
    return labels, {model: [cells.get((model, label)) for label in labels] for model in models}


def as_text(run: MatrixResults) -> str:
    """Return a table of the cells, and their new errors and warnings."""
    rows = [(result.cell.id, run.state_of(result), detail_of(result)) for result in run.results]
    lines = [*columns(rows, indent="")]
    shown: dict[str, list[CellFinding]] = {}
    for finding in new_findings(run):
        shown.setdefault(finding.result.cell.id, []).append(finding)
    for findings in shown.values():
        lines += ["", *_findings(findings[0].result, findings)]
    lines += ["", *unused_lines(run)] if run.unused else []
    return "\n".join([*lines, "", run_in_one_line(run)])


def new_findings(run: MatrixResults) -> tuple[CellFinding, ...]:
    """Return the errors and warnings that are not known."""
    return tuple(finding for finding in run.findings if finding.problem.level != "note" and not finding.known)


def unused_lines(run: MatrixResults) -> list[str]:
    """Return a line for each entry of the baseline that no longer occurs."""
    level = "error" if run.strict_baseline else "warning"
    lines = [f"  {entry['cell']} {entry['rule']}: {entry['message']}" for entry in run.unused]
    return [f"{level}: entries of the baseline no longer occur; --update-baseline removes them", *lines]


def _findings(result: CellResult, findings: Sequence[CellFinding]) -> list[str]:
    lines = [f"{result.cell.id}: {result.file}"]
    lines += [
        f"  {finding.problem.level} {finding.problem.rule}: {finding.problem.message}" for finding in findings[:_SHOWN]
    ]
    lines += [f"  and {len(findings) - _SHOWN} more; the reports list all"] if len(findings) > _SHOWN else []
    hints = dict.fromkeys(finding.problem.hint for finding in findings if finding.problem.hint)
    return [line.replace("\n", "\n    ") for line in lines] + [f"  hint: {hint}" for hint in hints]


def detail_of(result: CellResult) -> str:
    """Return one line about a cell: its first error, or the folder of its result."""
    errors = [problem for problem in result.problems if problem.level == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        return f"{errors[0].rule}: {errors[0].message.splitlines()[0]}{more}"
    if result.state == "cancelled":
        return ""
    changes = ", ".join(result.changes[:_NAMED]) + (" .." if len(result.changes) > _NAMED else "")
    return f"{result.cell.output}, changed: {changes}" if changes else result.cell.output


def as_json(run: MatrixResults) -> dict[str, Any]:
    """Return the object of ``graphpass ci --format json`` and ``--report-json``."""
    cells = []
    for result in run.results:
        report = result.to_json() | {"verdict": run.verdict(result)}
        for problem, noted in zip(result.problems, report["problems"], strict=True):
            noted["known"] = run.is_known(result, problem, noted["fingerprint"])
        cells.append(report)
    return {
        "exit_code": run.exit_code,
        "interrupted": run.interrupted,
        "fail_on": sorted(run.fail_on),
        "seconds": round(run.seconds, 3),
        "counts": {name.replace(" ", "_"): count for name, count in run.counts.items()},
        "strict_baseline": run.strict_baseline,
        "unused_baseline": [dict(entry) for entry in run.unused],
        "cells": cells,
    }
