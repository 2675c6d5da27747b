"""Merge JSON reports of shards into one run."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from graphpass.errors import ReadError, UsageError
from graphpass.storage.documents import read_json, regular

from .cells import LISTS, Budgets, Cell, CellResult, Problem, Settings
from .run import MatrixResults

Kind = TypeVar("Kind")

_HINT = "name files that --report-json of this version wrote"


def merged(files: Sequence[Path]) -> MatrixResults:
    """Return the run of all cells in JSON reports.

    Results of shards are in the order of the configuration. If a cell is in several reports, the last one counts.

    Args:
        files: Reports written by ``--report-json``.

    Raises:
        ReadError: GP114, a file cannot be read.
        UsageError: GP239, a file is not a report.
    """
    reports = [_report(file) for file in files]
    rows = itertools.zip_longest(*([_result(cell) for cell in report["cells"]] for report in reports))
    order = [result.cell.id for row in rows for result in row if result is not None]
    latest = {cell["cell"]["id"]: cell for report in reports for cell in report["cells"]}
    unused = {entry["fingerprint"]: entry for report in reports for entry in report["unused_baseline"]}
    return MatrixResults(
        tuple(_result(latest[name]) for name in dict.fromkeys(order)),
        frozenset(
            problem["fingerprint"] for cell in latest.values() for problem in cell["problems"] if problem["known"]
        ),
        frozenset(level for report in reports for level in report["fail_on"]),
        max(report["seconds"] for report in reports),
        any(report["interrupted"] for report in reports),
        tuple(unused.values()),
        any(report["strict_baseline"] for report in reports),
    )


def _report(file: Path) -> dict[str, Any]:
    from jsonschema import Draft202012Validator

    schema = read_json(resources.files("graphpass.reports").joinpath("schemas/ci.json").read_text(encoding="utf-8"))
    try:
        content = read_json(regular(file).read_bytes())
    except OSError as error:
        raise ReadError("GP114", f"cannot read the report {file}: {error.strerror}", _HINT) from error
    except ValueError as error:
        raise UsageError("GP239", f"{file} is not JSON: {error}", _HINT) from error
    if (offence := next(Draft202012Validator(schema).iter_errors(content), None)) is not None:
        reason = f"{file} is not a JSON report of graphpass ci: {offence.json_path}: {offence.message[:200]}"
        raise UsageError("GP239", reason, _HINT)
    report: dict[str, Any] = content
    return report


def _result(report: Mapping[str, Any]) -> CellResult:
    settings = dict(report["cell"]["settings"])
    settings |= {name: tuple(settings[name]) for name in LISTS} | {"budgets": Budgets(**settings["budgets"])}
    cell = _made(Cell, report["cell"] | {"settings": Settings(**settings)})
    problems = tuple(_made(Problem, problem) for problem in report["problems"])
    values = {
        "cell": cell,
        "problems": problems,
        "outcome": report["outcome"] or {},
        "changes": tuple(report["changes"]),
    }
    return _made(CellResult, {**report, **values})


def _made(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    return kind(**{field.name: values[field.name] for field in fields(kind)})  # type: ignore[arg-type]
