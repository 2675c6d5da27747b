"""Align the operators of two models."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import zip_longest

from graphpass.ir.graph import Node
from graphpass.reports.picture.side import Side


def rows_of(sides: Sequence[Side], shown: Sequence[Sequence[Node]]) -> list[list[int | None]]:
    """Align operators of two models.

    Operators of both stand beside each other; between them stands what one has instead of the other.

    Args:
        sides: The models.
        shown: Operators of each, in the order in which they are shown.
    """
    places = {sides[1].key(node.index): place for place, node in enumerate(shown[1])}
    keys = [sides[0].partner(node.index) for node in shown[0]]
    pairs = _rising([(place, places[key]) for place, key in enumerate(keys) if key in places])
    rows: list[list[int | None]] = []
    left = right = 0
    for one, other in [*pairs, (len(shown[0]), len(shown[1]))]:
        mine, theirs = range(left, one), range(right, other)
        rows += [[*pair] for pair in zip_longest(mine, theirs)]
        rows.append([one, other])
        left, right = one + 1, other + 1
    return rows[:-1]


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest part of pairs whose second numbers rise, as their first ones do."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int | None] = []
    for number, (_, second) in enumerate(pairs):
        place = bisect_left(tails, second)
        tails[place : place + 1], ends[place : place + 1] = [second], [number]
        before.append(ends[place - 1] if place else None)
    found: list[tuple[int, int]] = []
    step = ends[-1] if ends else None
    while step is not None:
        found.append(pairs[step])
        step = before[step]
    return found[::-1]
