"""Results of cells: fingerprints, expected and transient errors."""

from dataclasses import replace

import pytest
from matrix.cells import cell, failed

from graphpass.errors import ReadError
from graphpass.matrix.cells import CellResult, Problem, hold_to_expectation, internal_error, may_pass


def test_fingerprints_stay_when_numbers_change():
    before, after = failed(3), failed(3)
    slower = tuple(replace(one, message=f"{one.message}0") for one in after.problems)
    assert before.fingerprints == replace(after, problems=slower).fingerprints
    assert len(set(before.fingerprints)) == 3
    assert not set(before.fingerprints) & set(failed(3, label="gpu").fingerprints)
    assert not set(before.fingerprints) & set(failed(3, node="other").fingerprints)
    alike = replace(before, problems=before.problems[:1] * 3)
    assert len(set(alike.fingerprints)) == 3


@pytest.mark.parametrize(
    ("state", "rules", "added"),
    [
        ("failed", ["GP301"], None),
        ("failed", ["GP350"], "expected GP301, but got GP350"),
        ("converted", [], "expected GP301, but the cell was converted"),
        ("cancelled", [], None),
    ],
)
def test_an_expected_error_has_to_occur(state, rules, added):
    problems = tuple(Problem(rule, "error", "it failed") for rule in rules)
    given = CellResult(replace(cell(), expect="GP301"), state, problems, 4 if rules else 0)
    found = hold_to_expectation(given)
    if added is None:
        assert found is given
        return
    assert (found.problems[0].rule, found.problems[0].message) == ("GP605", added)
    assert found.exit_code == (4 if rules else 1)
    assert hold_to_expectation(replace(given, cell=cell())).problems == problems


def test_errors_of_the_storage_may_pass_and_internal_ones_do_not():
    lost = CellResult.of_error(cell(), ReadError("GP115", "lost", "wait"))
    assert (lost.state, lost.exit_code, lost.problems[0].hint, may_pass(lost)) == ("failed", 3, "wait", True)
    broken = internal_error(cell(), ValueError("a\n b"))
    assert (broken.exit_code, broken.problems[0].rule, may_pass(broken)) == (70, "GP408", False)
    assert broken.problems[0].message == "internal error: ValueError: a b"
