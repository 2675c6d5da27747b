"""Commands as functions: their results print and serialize as the commands do."""

import subprocess
import sys
from dataclasses import is_dataclass
from pathlib import Path

import pytest

import graphpass


def test_verify_is_a_function_and_a_package():
    lines = "import graphpass; before = graphpass.verify; from graphpass.verify import compare"
    assert (
        subprocess.run(
            [sys.executable, "-c", f"{lines}; assert callable(before) and graphpass.verify is before"]
        ).returncode
        == 0
    )
    assert callable(graphpass.verify)


@pytest.mark.parametrize("name", ["Check", "Comparison", "Diff", "Inspection", "Matrix", "Outcome", "SplitOutcome"])
def test_results_are_frozen_dataclasses(name):
    made = getattr(graphpass, name)
    assert is_dataclass(made)
    assert made.__dataclass_params__.frozen
    assert callable(made.to_json)
    assert made.__str__ is not object.__str__


def test_names_are_known_to_type_checkers_alone_by_the_package():
    """Type checkers take a module's ``__getattr__`` for a promise of any name."""
    source = Path(graphpass.__file__).read_text("utf-8")
    assert "def __getattr__" not in source
    for name in graphpass.__all__:
        assert f" {name} as {name}" in source or f"({name} as {name}" in source, name
