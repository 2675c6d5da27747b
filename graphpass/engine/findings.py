"""Findings of a target's rules, and their comparison with a trial."""

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
    """A statement about how a runtime treats one part of a model.

    Attributes:
        subject: Kind of the part.
        name: The node of the attention, the cache, the node that sorts or weighs experts, the input, or the file of the
            model.
        verdict: The runtime's treatment of the part:

            - ``fused``: with its cache into one operator.
            - ``not fused``: correct, but slow.
            - ``plain``: not subject to fusion, such as attention over an encoder.
            - ``taken``: supported unchanged.
            - ``refused``: the runtime fails.
            - ``wrong``: the runtime computes incorrect results.
        layer: Index among the layers with caches, from 0; ``None`` if the part belongs to no layer.
        node: The first node at which the pattern does not match.
        reason: The reason, as a sentence without a period.
        source: The runtime's source file that contains the rule.
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
        """Return whether the contract allows the verdict."""
        return self.verdict not in _BROKEN

    @classmethod
    def of_model(
        cls, model: Model, verdict: Verdict, reason: str, source: str | None = None, node: Node | None = None
    ) -> Finding:
        """Return a finding about ``model`` as a whole, named by its file.

        Args:
            model: The model.
            verdict: The runtime's treatment of the model.
            reason: The reason, as a sentence without a period.
            source: The runtime's source file that contains the rule.
            node: The first node at which the rule does not hold.

        Returns:
            The finding.
        """
        name = "the model" if model.path is None else model.path.name
        return cls("model", name, verdict, None, None if node is None else node.name, reason, source)

    @classmethod
    def at(
        cls, miss: Miss, subject: Subject, name: str, verdict: Verdict, source: str, layer: int | None = None
    ) -> Finding:
        """Return the finding for a miss.

        Args:
            miss: The first node that does not match, with the reason.
            subject: Kind of the part.
            name: Name of the part.
            verdict: The runtime's treatment of the part.
            source: The runtime's source file that contains the rule.
            layer: Index among the layers with caches; ``None`` if the part belongs to no layer.

        Returns:
            The finding.
        """
        return cls(subject, name, verdict, layer, miss.node.name, miss.reason, source)


@dataclass(frozen=True, slots=True)
class Observation:
    """The behaviour of a runtime in a trial.

    Attributes:
        tried: Description of the trial.
        fused: Names of the fused parts; ``None`` if the runtime does not report them.
        subject: Kind of these parts.
        refused: The runtime's error message, if it failed.
        wrong: Description of the difference from the expected results, if any.
        ran: Whether the runtime computed results that were compared.
        elsewhere: Names of nodes that ran on a device other than the target's.
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
    """The comparison of predictions with an observation.

    Attributes:
        outcome: ``impossible`` if the runtime is not available.
        tried: The trial, or the reason why none took place.
        contradictions: One sentence per prediction that the trial contradicts; each is a bug of the rules.
    """

    outcome: Literal["confirmed", "contradicted", "impossible"]
    tried: str
    contradictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContractReport:
    """Findings about a target's contract for one model.

    Attributes:
        target: The target, with options that differ from their defaults.
        findings: Findings about the model as a whole, then by layer.
        confirmation: Result of the trial; ``None`` if no trial was requested.
    """

    target: str
    findings: tuple[Finding, ...]
    confirmation: Confirmation | None = None

    @property
    def holds(self) -> bool:
        """Return whether all findings hold and the trial contradicts none."""
        contradicted = self.confirmation is not None and self.confirmation.outcome == "contradicted"
        return not contradicted and all(finding.holds for finding in self.findings)


def confirmation_of(findings: tuple[Finding, ...], observed: Observation) -> Confirmation:
    """Compare predictions with the behaviour of the runtime.

    Args:
        findings: The predictions.
        observed: The behaviour of the runtime in a trial.

    Returns:
        Whether the trial confirmed the predictions, and the predictions that it contradicts.
    """
    refusals = [finding for finding in findings if finding.verdict == "refused"]
    wrong = [finding for finding in findings if finding.verdict == "wrong"]
    contradictions: list[str] = []
    if observed.refused is not None and not refusals:
        contradictions.append(f"no refusal was predicted, but: {observed.refused}")
    if observed.refused is None:
        contradictions += [f"{finding.name}: predicted refused, observed accepted" for finding in refusals]
        if observed.fused is not None:
            contradictions += [
                f"{finding.name}: predicted {finding.verdict}, observed {'fused' if is_fused else 'not fused'}"
                for finding in findings
                if finding.subject == observed.subject
                and (is_fused := finding.name in observed.fused) != (finding.verdict == "fused")
            ]
        predicted = {name for finding in findings for name in (finding.name, finding.node) if not finding.holds}
        contradictions += [f"{name} ran on another device" for name in sorted(observed.elsewhere - predicted)]
        if observed.wrong is not None and not wrong:
            contradictions.append(f"correct results were predicted, but {observed.wrong}")
        if observed.ran and observed.wrong is None:
            contradictions += [f"{finding.name}: predicted wrong, observed correct results" for finding in wrong]
    tried = observed.tried if observed.refused is None else f"the runtime refused it: {observed.refused}"
    return Confirmation("contradicted" if contradictions else "confirmed", tried, tuple(contradictions))
