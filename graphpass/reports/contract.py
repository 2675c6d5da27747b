"""Report on a target's contract, as text and as JSON (``schemas/check.json``)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from graphpass.engine.findings import Confirmation, ContractReport as Findings, Finding
from graphpass.engine.target import Target
from graphpass.errors import UnsupportedError
from graphpass.ir.model import Model
from graphpass.printable import on_one_line
from graphpass.reports.report import Report
from graphpass.reports.text import columns, layers_in_words, shortened

_NOUNS = {
    "attention": ("attention", "attention"),
    "cache": ("cache", "caches"),
    "experts": ("experts", "expert layers"),
    "input": ("input", "inputs"),
}

#: Largest number of entries in a text of at most 40 lines; an entry has up to three.
_ENTRIES = 8

_OUTCOMES = {"confirmed": "confirmed", "contradicted": "contradicted", "impossible": "not confirmed"}


@dataclass(frozen=True, slots=True)
class Check(Report):
    """Report on the execution of a model by a target's runtime.

    Attributes:
        model: The model; the decoder of an encoder-decoder.
        report: The findings, and the outcome of the trial.

    Examples:
        >>> import graphpass
        >>> check = graphpass.check("build/fixtures/granitemoehybrid/ov-stateful", "paged", confirm=False)
        >>> check.holds
        False
    """

    model: Model
    report: Findings

    @property
    def holds(self) -> bool:
        """Return whether the target's contract holds."""
        return self.report.holds

    def text(self, *, verbose: bool = False) -> str:
        """Return the text of ``graphpass check``, with one entry for layers with equal findings.

        Args:
            verbose: Whether to list all entries; otherwise the text has at most 40 lines.
        """
        verdict = "the contract holds" if self.report.holds else "the contract does not hold"
        lines = [f"{on_one_line(str(self.model.path))} for {self.report.target}", ""]
        groups: dict[tuple[object, ...], list[Finding]] = {}
        for finding in self.report.findings:
            # Findings that break the contract have a node, so each gets its own entry.
            groups.setdefault((finding.subject, finding.verdict, finding.reason, finding.node), []).append(finding)
        rows = [(_layers(group), group[0].verdict, _subject(group)) for group in groups.values()]
        details = [_details(group[0]) for group in groups.values()]
        entries = list(zip(columns(rows), details, strict=True))
        shown = entries if verbose else entries[:_ENTRIES]
        for row, detail in shown:
            lines += [row, *(f"      {on_one_line(line)}" for line in detail)]
        if len(shown) < len(entries):
            lines.append(f"  and {len(entries) - len(shown)} more; --verbose prints all")
        if not rows:
            lines.append("  no attention, cache or experts for the runtime to fuse")
        if self.report.confirmation is not None:
            lines += ["", *shortened(_confirmation(self.report.confirmation), _ENTRIES, verbose=verbose)]
        lines += ["", verdict]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``--format json``."""
        return {"model": str(self.model.path), "holds": self.holds, **asdict(self.report)}


class BrokenContractError(UnsupportedError):
    """Raised for a result that its target's runtime does not fuse, or computes incorrectly.

    Attributes:
        report: The findings.
    """

    def __init__(self, id: str, message: str, hint: str | None, report: Findings) -> None:  # noqa: A002
        super().__init__(id, message, hint)
        self.report = report


def hold_to_contract(
    model: Model, target: Target, *, confirm: bool, allowed: bool, encoder: Model | None = None
) -> Findings | None:
    """Check the result of a pipeline against its target's contract.

    Args:
        model: The result.
        target: The target; without rules, only the conditions of its contract are checked.
        confirm: Whether to run a trial on the runtime.
        allowed: Whether a broken contract is allowed.
        encoder: The encoder, if ``model`` is the decoder of an encoder-decoder.

    Returns:
        The report; ``None`` for a target without rules.

    Raises:
        PassFailedError: GP405, a condition of the contract does not hold.
        BrokenContractError: GP350, a finding breaks the contract.
    """
    from graphpass.analysis.caches.extra_outputs import extra_outputs
    from graphpass.engine.syntax import quote
    from graphpass.targets import check_model

    target.require_contract(model)
    if not target.has_rules:
        return None
    report = check_model(model, target, confirm=confirm, encoder=encoder)
    if not report.holds and not allowed:
        flaws = flaws_of(report)
        more = f", and {len(flaws) - 1} more" if len(flaws) > 1 else ""
        message = f"the result does not keep the contract of target {report.target}: {flaws[0]}{more}"
        hint = "--allow-unfused writes the result anyway; graphpass check then prints all findings"
        if extra := extra_outputs(model):
            names = ",".join(map(quote, extra))
            hint = f"outputs may prevent fusion: run drop-ports{{outputs=[{names}]}} if no program reads them; {hint}"
        raise BrokenContractError("GP350", message, hint, report)
    return report


def summarize_contract(report: Findings) -> list[str]:
    """Return the lines about a contract in the report on a conversion."""
    tried = "" if report.confirmation is None else f"; {_confirmation(report.confirmation)[0]}"
    if report.holds:
        return [f"contract  holds{tried}"]
    return [f"contract  does not hold{tried}", *(f"  {flaw}" for flaw in flaws_of(report))]


def flaws_of(report: Findings) -> list[str]:
    """Return a sentence for each finding that breaks the contract, and each contradiction."""
    broken = [finding for finding in report.findings if not finding.holds]
    flaws = [flaw_of(finding) for finding in broken]
    return flaws + list(report.confirmation.contradictions if report.confirmation is not None else ())


def flaw_of(finding: Finding) -> str:
    """Return the sentence of a finding that breaks the contract."""
    return f"{finding.name} is {finding.verdict}: {'; '.join(_details(finding)[:1])}"


def _layers(group: list[Finding]) -> str:
    if all(finding.layer is None for finding in group):
        return "model" if group[0].subject in {"model", "input"} else "-"
    return layers_in_words(finding.layer for finding in group)


def _subject(group: list[Finding]) -> str:
    subject, name = group[0].subject, group[0].name
    if subject == "model":
        return name
    singular, many = _NOUNS[subject]
    return f"{singular} {name}" if len(group) == 1 else f"{len(group)} {many}"


def _details(finding: Finding) -> list[str]:
    if finding.reason is None:
        return []
    flaw = finding.reason if finding.node in {None, finding.name} else f"at {finding.node}: {finding.reason}"
    return [flaw] if finding.source is None else [flaw, f"rule: {finding.source}"]


def _confirmation(confirmation: Confirmation) -> list[str]:
    outcome = f"{_OUTCOMES[confirmation.outcome]}: {confirmation.tried}"
    if confirmation.outcome != "contradicted":
        return [outcome]
    bug = "  this is a bug in graphpass's rules; please report it with the model"
    return [outcome, *(f"  {line}" for line in confirmation.contradictions), bug]
