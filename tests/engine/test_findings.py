"""Findings, and predictions compared with a trial."""

import pytest

from graphpass.engine.findings import Confirmation, ContractReport, Finding, Observation, confirmation_of
from graphpass.ir.miss import Miss
from graphpass.testing import parse_model

FUSED = Finding("attention", "a", "fused")
PLAIN = Finding("attention", "b", "plain")
SLOW = Finding("attention", "c", "not fused", node="c/add")
REFUSED = Finding("model", "m", "refused")
WRONG = Finding("cache", "k", "wrong")
INPUT = Finding("input", "i", "taken")


@pytest.mark.parametrize(
    ("findings", "observed", "contradictions"),
    [
        ((FUSED, PLAIN, SLOW), Observation("tried", fused=frozenset("a"), ran=True), []),
        ((FUSED,), Observation("tried", fused=frozenset()), ["a: predicted fused, observed not fused"]),
        ((SLOW,), Observation("tried", fused=frozenset("c")), ["c: predicted not fused, observed fused"]),
        ((FUSED, INPUT), Observation("tried", fused=frozenset("ai")), []),
        ((FUSED,), Observation("tried"), []),
        ((FUSED,), Observation("tried", refused="no"), ["no refusal was predicted, but: no"]),
        ((REFUSED, FUSED), Observation("tried", refused="no", fused=frozenset()), []),
        ((REFUSED,), Observation("tried"), ["m: predicted refused, observed accepted"]),
        ((FUSED,), Observation("tried", wrong="2 differs"), ["correct results were predicted, but 2 differs"]),
        ((WRONG,), Observation("tried", wrong="2 differs", ran=True), []),
        ((WRONG,), Observation("tried", ran=True), ["k: predicted wrong, observed correct results"]),
        ((WRONG,), Observation("tried"), []),
        ((SLOW,), Observation("tried", elsewhere=frozenset({"c", "c/add"})), []),
        ((FUSED,), Observation("tried", elsewhere=frozenset("a")), ["a ran on another device"]),
    ],
)
def test_a_trial_confirms_or_contradicts_predictions(findings, observed, contradictions):
    found = confirmation_of(findings, observed)
    assert list(found.contradictions) == contradictions
    assert found.outcome == ("contradicted" if contradictions else "confirmed")
    assert found.tried == ("tried" if observed.refused is None else "the runtime refused it: no")


@pytest.mark.parametrize(
    ("findings", "outcome", "holds"),
    [
        ((FUSED, PLAIN, INPUT), None, True),
        ((FUSED, SLOW), None, False),
        ((REFUSED,), "confirmed", False),
        ((FUSED,), "impossible", True),
        ((FUSED,), "contradicted", False),
    ],
)
def test_a_contract_holds_unless_a_finding_or_the_trial_breaks_it(findings, outcome, holds):
    confirmation = None if outcome is None else Confirmation(outcome, "tried")
    assert ContractReport("cpu", findings, confirmation).holds is holds


def test_findings_name_model_and_node():
    model = parse_model("%x = Parameter : f32[4]\n%y = Relu(%x)\nResult(%y) {name=y}")
    (relu,) = model.graph.of_op("Relu")
    found = Finding.of_model(model, "refused", "no Relu", node=relu)
    assert (found.name, found.node, found.reason) == ("the model", relu.name, "no Relu")
    missed = Finding.at(Miss(relu, "a Relu"), "attention", "s", "not fused", "a.cpp", layer=3)
    assert (missed.layer, missed.node, missed.reason, missed.source) == (3, relu.name, "a Relu", "a.cpp")
