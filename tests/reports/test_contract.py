"""Reports on contracts: grouped findings, flaws as sentences, outcomes of trials, and refusals of results."""

import pytest

from graphpass.engine.findings import Confirmation, ContractReport, Finding
from graphpass.reports.contract import Check, flaw_of, flaws_of, hold_to_contract, summarize_contract
from graphpass.testing import parse_model

MODEL = parse_model("%x = Parameter : f32[4]\n%y = Relu(%x)\nResult(%y) {name=y}")
FUSED = [Finding("attention", f"a{layer}", "fused", layer) for layer in range(3)]
UNFUSED = Finding("attention", "a3", "not fused", 3, "scale", "it is scaled", "fuse.cpp")
REFUSED = Finding("model", "m.onnx", "refused", reason="it is too large")
CONFIRMED = Confirmation("confirmed", "ran 2 steps")
CONTRADICTED = Confirmation("contradicted", "ran 2 steps", ("a0: predicted fused, observed not fused",))


def text(*findings, confirmation=None, **options):
    return Check(MODEL, ContractReport("cpu", findings, confirmation)).text(**options)


def test_layers_with_equal_findings_share_an_entry():
    lines = text(*FUSED, UNFUSED, REFUSED).splitlines()
    assert lines[2].split() == ["layers", "0-2", "fused", "3", "attention"]
    assert lines[3].split() == ["layer", "3", "not", "fused", "attention", "a3"]
    assert lines[4:6] == ["      at scale: it is scaled", "      rule: fuse.cpp"]
    assert lines[6].split() == ["model", "refused", "m.onnx"]
    assert lines[-1] == "the contract does not hold"


def test_long_reports_are_cut_unless_verbose():
    many = [Finding("cache", f"c{layer}", "refused", layer, f"n{layer}", "it is odd") for layer in range(11)]
    assert "  and 3 more; --verbose prints all" in text(*many)
    assert len(text(*many, verbose=True).splitlines()) == 2 + 22 + 2


def test_nothing_to_fuse_is_said():
    assert text().splitlines()[2:] == [
        "  no attention, cache or experts for the runtime to fuse",
        "",
        "the contract holds",
    ]


@pytest.mark.parametrize(
    ("finding", "sentence"),
    [
        (UNFUSED, "a3 is not fused: at scale: it is scaled"),
        (REFUSED, "m.onnx is refused: it is too large"),
        (Finding("cache", "k", "wrong", node="k", reason="it is odd"), "k is wrong: it is odd"),
    ],
)
def test_flaws_are_sentences(finding, sentence):
    assert flaw_of(finding) == sentence


@pytest.mark.parametrize(
    ("findings", "confirmation", "lines"),
    [
        (FUSED, None, ["contract  holds"]),
        (FUSED, CONFIRMED, ["contract  holds; confirmed: ran 2 steps"]),
        ([UNFUSED], None, ["contract  does not hold", "  a3 is not fused: at scale: it is scaled"]),
        (
            FUSED,
            CONTRADICTED,
            ["contract  does not hold; contradicted: ran 2 steps", f"  {CONTRADICTED.contradictions[0]}"],
        ),
    ],
)
def test_a_contract_in_short(findings, confirmation, lines):
    report = ContractReport("cpu", tuple(findings), confirmation)
    assert summarize_contract(report) == lines
    assert report.holds == (not flaws_of(report))


def test_a_contradicted_rule_is_a_bug_to_report():
    assert "  this is a bug in graphpass's rules" in text(*FUSED, confirmation=CONTRADICTED)
    assert "bug" not in text(*FUSED, confirmation=CONFIRMED)


class Runtime:
    """Stands in for a target without rules."""

    has_rules = False

    def require_contract(self, model):
        self.required = model


def test_targets_without_rules_check_their_conditions_alone():
    runtime = Runtime()
    assert hold_to_contract(MODEL, runtime, confirm=False, allowed=False) is None
    assert runtime.required is MODEL
