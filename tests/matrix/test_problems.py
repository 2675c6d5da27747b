"""Problems of cells, from errors and from written results."""

from pathlib import Path

import pytest

from graphpass.engine.findings import Confirmation, ContractReport, Finding
from graphpass.errors import UnsupportedError, UsageError
from graphpass.matrix.problems import problems_of_error, problems_of_outcome
from graphpass.reports.contract import BrokenContractError
from graphpass.reports.outcome import Outcome

FINDINGS = (
    Finding("attention", "a0", "fused", 0),
    Finding("attention", "a1", "not fused", 1, reason="it is scaled"),
    Finding("cache", "k", "wrong", 2, "concat", "it is odd"),
    Finding("model", "m.onnx", "refused", reason="it is large"),
)
REPORT = ContractReport("cpu", FINDINGS, Confirmation("contradicted", "a trial", ("predicted, but not observed",)))


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("use --no-verify", "use verify = false"),
        ("--allow-unfused writes the result", "allow-unfused = true writes the result"),
        (None, ""),
    ],
)
def test_hints_name_keys_of_the_configuration(hint, expected):
    (problem,) = problems_of_error(UsageError("GP201", "a message", hint))
    assert (problem.rule, problem.level, problem.hint) == ("GP201", "error", expected)


def test_a_broken_contract_is_one_problem_for_each_finding():
    problems = problems_of_error(BrokenContractError("GP350", "broken", "--verify-each finds it", REPORT))
    assert [(each.subject, each.node) for each in problems] == [("a1", "a1"), ("k", "concat"), ("", ""), ("", "")]
    assert {each.hint for each in problems} == {"verify-each = true finds it"}
    assert problems[-1].message == "predicted, but not observed"
    assert len(problems_of_error(UnsupportedError("GP350", "broken"))) == 1


def test_a_written_result_that_breaks_its_contract_warns():
    outcome = Outcome(Path("in"), Path("out"), (), (), contract=REPORT, notes=("no tokenizer",))
    problems = problems_of_outcome(outcome)
    assert [each.level for each in problems] == ["warning"] * 4 + ["note"]
    assert (problems[-1].rule, problems[-1].message) == ("tokenizer", "no tokenizer")
    assert (
        problems_of_outcome(Outcome(Path("in"), Path("out"), (), (), contract=ContractReport("cpu", FINDINGS[:1])))
        == ()
    )
