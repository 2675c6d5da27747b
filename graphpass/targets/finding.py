"""`Finding` and `Report`: what a runtime will do with a graph, and whether trying it out said the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Confirmation", "Finding", "Observation", "Report", "Subject", "Verdict", "compare"]

Subject = Literal["attention", "cache", "input", "model"]

Verdict = Literal["fused", "not fused", "plain", "taken", "refused", "wrong"]

#: Verdicts that break a target's contract.
BROKEN: frozenset[Verdict] = frozenset({"not fused", "refused", "wrong"})


@dataclass(frozen=True, slots=True)
class Finding:
    """What a runtime does with one part of a graph.

    Attributes:
        subject: What kind of part.
        name: The attention's node, the cache, the input; the model's file where it is the model as a whole.
        verdict: ``fused`` with its cache into one operator; ``not fused``: right, but on a slow path; ``plain``:
            nothing that the runtime would fuse, such as attention over an encoder; ``taken`` as it is; ``refused``: the
            runtime fails on it; ``wrong``: the runtime computes other numbers.
        layer: Position among the layers that hold caches, from 0; ``None`` where it belongs to none.
        node: The first node that breaks the pattern.
        reason: What is wrong with it.
        source: The file of the runtime in which the rule stands.
    """

    subject: Subject
    name: str
    verdict: Verdict
    layer: int | None = None
    node: str | None = None
    reason: str | None = None
    source: str | None = None

    @property
    def holds(self) -> bool:
        """Whether the contract allows it."""
        return self.verdict not in BROKEN


@dataclass(frozen=True, slots=True)
class Observation:
    """What the runtime did when it was tried.

    Attributes:
        tried: What was done, for people.
        fused: Names of the parts that it fused; ``None`` where that was not to be seen.
        subject: Of which kind these parts are.
        refused: Its words, where it failed.
        wrong: In what its numbers differ, where they do.
        ran: Whether it got as far as computing numbers, which were compared.
    """

    tried: str
    fused: frozenset[str] | None = None
    subject: Subject = "attention"
    refused: str | None = None
    wrong: str | None = None
    ran: bool = False


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Whether the runtime, tried here, did what was predicted.

    Attributes:
        outcome: ``impossible`` where the runtime cannot be tried here.
        tried: What was done, or why nothing could be.
        contradictions: One sentence for each prediction that did not come true: a bug of the rules.
    """

    outcome: Literal["confirmed", "contradicted", "impossible"]
    tried: str
    contradictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Whether a model keeps a target's contract.

    Attributes:
        target: The target's name.
        findings: The model as a whole first, then by layer.
        confirmation: ``None`` where only a prediction was asked for.
    """

    target: str
    findings: tuple[Finding, ...]
    confirmation: Confirmation | None = None

    @property
    def holds(self) -> bool:
        """Whether every finding holds, and trying it out contradicted none."""
        contradicted = self.confirmation is not None and self.confirmation.outcome == "contradicted"
        return not contradicted and all(finding.holds for finding in self.findings)


def compare(findings: tuple[Finding, ...], observed: Observation) -> Confirmation:
    """Hold predictions against what the runtime did."""
    refusals = [finding for finding in findings if finding.verdict == "refused"]
    wrong = [finding for finding in findings if finding.verdict == "wrong"]
    said: list[str] = []
    if observed.refused is not None and not refusals:
        said.append(f"no refusal was predicted, but: {observed.refused}")
    if observed.refused is None:
        said += [f"{finding.name} was to be refused, but is not" for finding in refusals]
        if observed.fused is not None:
            said += [
                f"{finding.name} was to be {finding.verdict}, but is {'fused' if is_fused else 'not fused'}"
                for finding in findings
                if finding.subject == observed.subject
                and (is_fused := finding.name in observed.fused) != (finding.verdict == "fused")
            ]
        if observed.wrong is not None and not wrong:
            said.append(f"right numbers were predicted, but {observed.wrong}")
        if observed.ran and observed.wrong is None:
            said += [f"{finding.name} was to give wrong numbers, but they are right" for finding in wrong]
    return Confirmation("contradicted" if said else "confirmed", observed.tried, tuple(said))
