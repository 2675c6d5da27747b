"""Leave the full product of cases to the slow run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pytest


def crossed(*axes: Sequence[Any]) -> list[Any]:
    """Return the product of several parameters' values; quick are as many cases as show each value once."""
    cases = list(itertools.product(*axes))
    return thinned(cases, *(lambda *case, place=place: repr(case[place]) for place in range(len(axes))))


def thinned(cases: Sequence[Any], *aspects: Callable[..., Hashable]) -> list[Any]:
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
