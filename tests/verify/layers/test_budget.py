"""Time and memory for comparisons of whole models."""

import pytest

from graphpass.errors import UsageError
from graphpass.machine import usable_cores
from graphpass.testing import parse_model
from graphpass.verify.layers.budget import Budget


def test_budgets_are_parsed() -> None:
    assert Budget.parse("90s,2GB") == Budget(90, 2e9)
    assert Budget.parse("2min").seconds == 120
    assert Budget.parse("1.5GB").bytes == 1.5e9
    assert Budget.parse("1.5GB").seconds == Budget.of_machine().seconds
    assert Budget.parse("5MB , 1min") == Budget(60, 5e6)


@pytest.mark.parametrize("text", ["", "4 cores", "60", "1s,,2GB", "-1s"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="GP250"):
        Budget.parse(text)


def test_memory_counts_both_models_and_time_the_larger() -> None:
    models = [parse_model(f"%w = Constant : f32[{size}]\n%y = Relu(%w)\nResult(%y) {{name=y}}") for size in (1000, 10)]
    assert Budget(60, 1.35 * 4040).holds(models)
    assert not Budget(60, 1.35 * 4040 - 1).holds(models)
    seconds = 4000 / 1e9 * 96 / usable_cores()
    assert Budget(seconds * 1.001, 1e9).holds(models)
    assert not Budget(seconds * 0.999, 1e9).holds(models)
