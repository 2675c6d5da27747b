"""Hold findings of a target's rules, and compare them with a trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphpass.ir.graph import Node
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model

Subject = Literal["attention", "cache", "experts", "input", "model"]

Verdict = Literal["fused", "not fused", "plain", "taken", "refused", "wrong"]

#: Verdicts that break a target's contract.
_BROKEN: frozenset[Verdict] = frozenset({"not fused", "refused", "wrong"})


@dataclass(frozen=True, slots=True)
class Finding:
    """A statement on a runtime's treatment of one part of a graph.

    Attributes:
        subject: Kind of part.
        name: The attention's node, the cache, the node that sorts or weighs experts, the input, or the model's file.
        verdict: ``fused`` with its cache into one operator; ``not fused``: correct, but on a slow path; ``plain``: not
            subject to fusion, such as attention over an encoder; ``taken``: supported unchanged; ``refused``: the
            runtime fails on it; ``wrong``: the runtime computes it incorrectly.
        layer: Position among the layers that hold caches, from 0; ``None`` if it belongs to none.
        node: The first node at which the pattern does not match.
        reason: The reason, as a sentence without its end.
        source: The runtime's source file with the rule.
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
        """Return whether the contract allows it."""
        return self.verdict not in _BROKEN

    @classmethod
    def of_model(
        cls, model: Model, verdict: Verdict, reason: str, source: str | None = None, node: Node | None = None
    ) -> Finding:
        """Return a finding on ``model`` as a whole, called by its file."""
        name = "the model" if model.path is None else model.path.name
        return cls("model", name, verdict, None, None if node is None else node.name, reason, source)

    @classmethod
    def at(
        cls, miss: Miss, subject: Subject, name: str, verdict: Verdict, source: str, layer: int | None = None
    ) -> Finding:
        """Return the finding that ``miss`` leads to."""
        return cls(subject, name, verdict, layer, miss.node.name, miss.reason, source)


@dataclass(frozen=True, slots=True)
class Observation:
    """Records the behaviour of a runtime that was tried.

    Attributes:
        tried: The trial, for people.
        fused: Names of the parts that it fused; ``None`` if the runtime does not show them.
        subject: Kind of these parts.
        refused: The runtime's own words, if it failed.
        wrong: Difference of its numbers, if there is one.
        ran: Whether it computed numbers, which were compared.
        elsewhere: Names of nodes that ran on another device than the target's.
    """

    tried: str
    fused: frozenset[str] | None = None
    subject: Subject = "attention"
    refused: str | None = None
    wrong: str | None = None
    ran: bool = False
    elsewhere: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Compares predictions with an observation.

    Attributes:
        outcome: ``impossible`` if the runtime cannot be tried here.
        tried: The trial, or why there was none.
        contradictions: One sentence for each prediction that did not come true: a bug of the rules.
    """

    outcome: Literal["confirmed", "contradicted", "impossible"]
    tried: str
    contradictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContractReport:
    """States whether a model keeps a target's contract.

    Attributes:
        target: The target, with options that differ from their defaults.
        findings: The model as a whole first, then by layer.
        confirmation: ``None`` if the runtime was not to be tried.
    """

    target: str
    findings: tuple[Finding, ...]
    confirmation: Confirmation | None = None

    @property
    def holds(self) -> bool:
        """Return whether every finding holds and the trial contradicted none."""
        contradicted = self.confirmation is not None and self.confirmation.outcome == "contradicted"
        return not contradicted and all(finding.holds for finding in self.findings)


def confirmation_of(findings: tuple[Finding, ...], observed: Observation) -> Confirmation:
    """Compare predictions with the runtime's behaviour.

    Returns:
        The predictions that the trial confirmed, and those that it contradicts.
    """
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
        foreseen = {name for finding in findings for name in (finding.name, finding.node) if not finding.holds}
        said += [f"{name} ran on another device" for name in sorted(observed.elsewhere - foreseen)]
        if observed.wrong is not None and not wrong:
            said.append(f"right numbers were predicted, but {observed.wrong}")
        if observed.ran and observed.wrong is None:
            said += [f"{finding.name} was to give wrong numbers, but they are right" for finding in wrong]
    tried = observed.tried if observed.refused is None else f"the runtime refused it: {observed.refused}"
    return Confirmation("contradicted" if said else "confirmed", tried, tuple(said))
