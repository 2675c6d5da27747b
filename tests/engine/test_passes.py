"""Errors of passes on one line."""

import pytest

from graphpass.engine.passes import first_line


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("  one\n   two  \n", "ValueError: one two"),
        ("1\n2\n3\n4\n5", "ValueError: 1 2 3 4"),
        ("", "ValueError: ValueError"),
        (" \n ", "ValueError: ValueError"),
    ],
)
def test_errors_are_shortened_to_one_line(message, line):
    assert first_line(ValueError(message)) == line
