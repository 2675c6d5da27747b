"""Problems of cells, from errors and outcomes of conversions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from graphpass.errors import GraphpassError

from .cells import Level, Problem

if TYPE_CHECKING:
    from graphpass.engine.findings import ContractReport
    from graphpass.reports.outcome import Outcome


def problems_of_error(error: GraphpassError) -> tuple[Problem, ...]:
    """Return the problems of a failed cell; for a broken contract, one for each finding."""
    from graphpass.jobs.job import UnequalError
    from graphpass.reports.contract import BrokenContractError

    hint = _of_configuration(error.hint or "")
    if isinstance(error, BrokenContractError):
        return _of_contract(error.report, "error", hint)
    if isinstance(error, UnequalError) and error.comparison.divergence is not None:
        output = error.comparison.divergence.output or ""
        return (Problem(error.id, "error", error.message, hint, output),)
    return (Problem(error.id, "error", error.message, hint),)


def _of_configuration(hint: str) -> str:
    """Return a hint with options of ``graphpass convert`` replaced by keys of the configuration."""
    return re.sub(r"--no-([a-z-]+)", r"\1 = false", re.sub(r"--(verify-each|allow-unfused)", r"\1 = true", hint))


def problems_of_outcome(outcome: Outcome) -> tuple[Problem, ...]:
    """Return warnings and notes about a written result."""
    problems: list[Problem] = []
    if outcome.contract is not None and not outcome.contract.holds:
        problems += _of_contract(outcome.contract, "warning", "")
    for report in outcome.models:
        problems += [
            Problem(record.step.name, "note", note, subject=report.name)
            for record in report.records
            for note in record.notes
        ]
    problems += [Problem("tokenizer", "note", note) for note in outcome.notes]
    if outcome.comparison is not None:
        problems += [Problem("verify", "warning", warning) for warning in outcome.comparison.warnings]
        problems += [Problem("verify", "note", f"not compared: {part}") for part in outcome.comparison.skipped]
    return tuple(problems)


def _of_contract(report: ContractReport, level: Level, hint: str) -> tuple[Problem, ...]:
    from graphpass.reports.contract import flaw_of

    problems = []
    for finding in report.findings:
        if not finding.holds:
            subject = "" if finding.subject == "model" else finding.name
            node = finding.node or (finding.name if finding.subject == "attention" else "")
            problems.append(Problem("GP350", level, flaw_of(finding), hint, subject, node))
    contradictions = () if report.confirmation is None else report.confirmation.contradictions
    return (*problems, *(Problem("GP350", level, contradiction, hint) for contradiction in contradictions))
