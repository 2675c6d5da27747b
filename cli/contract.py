"""Print a report on a target's contract as text or as the JSON of ``reports/schemas/check.json``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from graphpass.errors import UnsupportedError
from graphpass.reports.layers import ranges

from .console import columns

if TYPE_CHECKING:
    from graphpass.engine.findings import Confirmation, Finding, Report
    from graphpass.engine.target import Target
    from graphpass.ir.model import Model

__all__ = ["as_json", "as_text", "hold_to_contract"]

_NOUNS = {"attention": ("attention", "attention"), "cache": ("cache", "caches"), "input": ("input", "inputs")}

_OUTCOMES = {"confirmed": "confirmed", "contradicted": "contradicted", "impossible": "not confirmed"}


def as_json(model: Model, report: Report) -> dict[str, Any]:
    """Return the object that ``check --format json`` prints."""
    return {"model": str(model.path), "holds": report.holds, **asdict(report)}


def as_text(model: Model, report: Report) -> str:
    """Return the text of ``graphpass check``, with one entry for layers that have equal findings."""
    verdict = "the contract holds" if report.holds else "the contract does not hold"
    lines = [f"{model.path} for {report.target}: {verdict}", ""]
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in report.findings:
        # A finding that breaks a contract names its node, so each stands by itself.
        groups.setdefault((finding.subject, finding.verdict, finding.reason, finding.node), []).append(finding)
    rows = [(_layers(group), group[0].verdict, _subject(group)) for group in groups.values()]
    details = [_details(group[0]) for group in groups.values()]
    for row, detail in zip(columns(rows) if rows else [], details, strict=True):
        lines += [row, *(f"      {line}" for line in detail)]
    if not rows:
        lines.append("  nothing in it is for the runtime to fuse")
    if report.confirmation is not None:
        lines += ["", *_confirmation(report.confirmation)]
    return "\n".join(lines)


def hold_to_contract(model: Model, target: Target, *, confirm: bool, allowed: bool) -> list[str]:
    """Check the result of a pipeline against its target's contract.

    Args:
        model: The result.
        target: Its target; without rules, only the conditions of its contract are checked.
        confirm: Whether to try the runtime.
        allowed: Whether the contract may be broken.

    Returns:
        Lines for the report.

    Raises:
        PassFailedError: GP405, a condition does not hold.
        UnsupportedError: GP350, a rule does not hold.
    """
    from graphpass.targets import check_model

    target.require_contract(model)
    if not target.has_rules:
        return []
    report = check_model(model, target, confirm=confirm)
    broken = [finding for finding in report.findings if not finding.holds]
    tried = "" if report.confirmation is None else f"; {_confirmation(report.confirmation)[0]}"
    if report.holds:
        return [f"contract  holds{tried}"]
    told = [f"{finding.name} is {finding.verdict}: {'; '.join(_details(finding)[:1])}" for finding in broken]
    if report.confirmation is not None:
        told += report.confirmation.contradictions
    if not allowed:
        more = f", and {len(told) - 1} more" if len(told) > 1 else ""
        raise UnsupportedError(
            "GP350",
            f"the result does not keep the contract of target {report.target}: {told[0]}{more}",
            "--allow-unfused writes it all the same; graphpass check then prints everything",
        )
    return [f"contract  does not hold{tried}", *(f"  {line}" for line in told)]


def _layers(group: list[Finding]) -> str:
    numbers = sorted({finding.layer for finding in group if finding.layer is not None})
    if not numbers:
        return "model" if group[0].subject in {"model", "input"} else "-"
    return f"layer{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"


def _subject(group: list[Finding]) -> str:
    subject, name = group[0].subject, group[0].name
    if subject == "model":
        return name
    one, many = _NOUNS[subject]
    return f"{one} {name}" if len(group) == 1 else f"{len(group)} {many}"


def _details(finding: Finding) -> list[str]:
    if finding.reason is None:
        return []
    told = finding.reason if finding.node in {None, finding.name} else f"at {finding.node}: {finding.reason}"
    return [told] if finding.source is None else [told, f"rule: {finding.source}"]


def _confirmation(confirmation: Confirmation) -> list[str]:
    said = f"{_OUTCOMES[confirmation.outcome]}: {confirmation.tried}"
    if confirmation.outcome != "contradicted":
        return [said]
    bug = "  the rules of graphpass are wrong here; please report it with the model"
    return [said, *(f"  {line}" for line in confirmation.contradictions), bug]
