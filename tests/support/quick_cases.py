"""Leave the full product of cases to the slow run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import PurePath
from typing import Any

import pytest

from support.models import fixtures


def quick_product(*axes: Sequence[Any]) -> list[Any]:
    """Return the product of several parameters' values; quick are as many cases as show each value once."""
    cases = list(itertools.product(*axes))
    return quick_subset(cases, *(lambda *case, place=place: repr(case[place]) for place in range(len(axes))))


def quick_subset(cases: Sequence[Any], *aspects: Callable[..., Hashable]) -> list[Any]:
    """Mark cases as slow that show nothing new; which ones they are depends on the cases alone.

    Args:
        cases: Values of one parameter, or tuples of several.
        aspects: Functions of a case. Each value that one of them has is shown by an unmarked case: for all pairs of
            two parameters let it return both.
    """
    wide = [case if isinstance(case, tuple) else (case,) for case in cases]
    shown = [{(number, aspect(*case)) for number, aspect in enumerate(aspects)} for case in wide]
    missing, quick = set().union(*shown), set()
    while missing:
        best = max(range(len(wide)), key=lambda place: len(shown[place] & missing))
        quick.add(best)
        missing -= shown[best]
    slow = pytest.mark.slow
    return [case if place in quick else pytest.param(*wide[place], marks=slow) for place, case in enumerate(cases)]


def model_files() -> list[str]:
    """The model files, relative to the fixtures' folder; tokenizers do not count."""
    files = [*fixtures().rglob("*.onnx"), *fixtures().rglob("*.xml")]
    return sorted(str(file.relative_to(fixtures())) for file in files if "tokenizer" not in file.name)


def quick_files(files: Iterable[str | PurePath]) -> list[Any]:
    """Thin out files below the fixtures: quick are each model, each way of exporting it, and each file name once."""
    return quick_subset(list(files), *(lambda file, place=place: PurePath(file).parts[place] for place in range(3)))
