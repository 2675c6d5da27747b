"""Read and write baselines: findings that are known and do not fail a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphpass.errors import UsageError
from graphpass.storage.documents import read_json

from .cells import CellResult
from .run import Run

_FORM = 1

#: Keys of a finding in a baseline file; the fingerprint counts, the others are for people.
_KEPT = ("fingerprint", "cell", "rule", "node", "message")

Entry = Mapping[str, str]


def read_baseline(file: Path) -> tuple[Entry, ...]:
    """Return the known findings of a baseline file; none if it is not there.

    Raises:
        UsageError: GP235, it is no baseline.
    """
    try:
        told = read_json(file.read_bytes())
        if told["baseline"] == _FORM:
            return tuple({key: str(finding[key]) for key in _KEPT} for finding in told["findings"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, LookupError, TypeError):
        pass
    hint = "restore it from version control, or remove it and run with --update-baseline"
    raise UsageError("GP235", f"{file} is no baseline of graphpass, or a damaged one", hint)


def unused_entries(known: Iterable[Entry], results: Sequence[CellResult], cells: Collection[str]) -> tuple[Entry, ...]:
    """Return entries of a baseline that do not occur any more.

    Args:
        known: The entries.
        results: Results of the run; cells that were cancelled say nothing about theirs.
        cells: Names of all cells of the configuration, run or not.
    """
    ended = {result.cell.id: result for result in results if result.state != "cancelled"}
    return tuple(
        entry
        for entry in known
        if entry["cell"] not in cells
        or (entry["cell"] in ended and entry["fingerprint"] not in ended[entry["cell"]].fingerprints)
    )


def baseline_of(run: Run, others: Iterable[Entry]) -> dict[str, Any]:
    """Return the object of a baseline file: errors and warnings, in an order that stays.

    Args:
        run: The run.
        others: Known findings of cells that did not run.
    """
    findings = [finding for finding in run.findings if finding.problem.level != "note"]
    told = [dict(entry) for entry in others]
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
    return {"baseline": _FORM, "findings": sorted(told, key=lambda one: (one["cell"], one["fingerprint"]))}
