"""Errors: ids, exit codes and texts, also across processes."""

import pickle

import pytest

from graphpass.errors import (
    GraphpassError,
    PassFailedError,
    PreconditionError,
    ReadError,
    UnsupportedError,
    UsageError,
    VerificationError,
    WriteError,
)


def test_a_hint_is_on_a_line_of_its_own():
    assert str(UsageError("GP211", "unknown pass", "write another")) == "GP211: unknown pass\n  hint: write another"
    assert str(UsageError("GP211", "unknown pass")) == "GP211: unknown pass"


@pytest.mark.parametrize(
    "error", [ReadError("GP101", "a", "b"), UsageError("GP211", "a"), GraphpassError("GP101", "a")]
)
def test_errors_survive_pickling(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.id, again.message, again.hint) == (type(error), error.id, error.message, error.hint)


def test_exit_codes_belong_to_hundreds_of_ids():
    classes = (ReadError, UsageError, UnsupportedError, PreconditionError, PassFailedError, WriteError)
    assert [each.exit_code for each in classes] == [3, 2, 4, 4, 5, 6]
    assert (VerificationError.exit_code, GraphpassError.exit_code) == (1, 70)
