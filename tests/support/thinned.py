"""Leave the full product of cases to the slow run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pytest


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
        best = max(range(len(cases)), key=lambda place: len(shown[place] & missing))
        quick.add(best)
        missing -= shown[best]
    return [
        case if place in quick else pytest.param(*wide[place], marks=pytest.mark.slow)
        for place, case in enumerate(cases)
    ]
