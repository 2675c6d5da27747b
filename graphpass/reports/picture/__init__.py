"""Describe one or two models as data for ``picture.js``, with equal layers folded."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from graphpass.ir.graph import Node
from graphpass.ir.model import Model
from graphpass.reports.diff.changes import ModelDifference
from graphpass.reports.picture.highlights import highlights_of
from graphpass.reports.picture.segments import BEFORE
from graphpass.reports.picture.side import AFTER, Side
from graphpass.reports.text import layers_in_words


def picture_of(
    titles: Sequence[str], before: Model, after: Model | None = None, difference: ModelDifference | None = None
) -> dict[str, Any]:
    """Return a picture of a model, or of two side by side.

    Args:
        titles: A name for each model.
        before: The model.
        after: The model to show beside it.
        difference: Their differences, from `graphpass.reports.diff.diff_models`.

    Returns:
        ``titles``; and ``groups``, in execution order: ``title``; ``layers``, the numbers of the layers that it folds,
        empty for operators outside of all layers; ``changes``, how many operators of one layer have each status;
        ``sides``, one for each model; and ``rows``, the operators of the sides that stand beside one another, by index.
        A side has ``nodes`` of the first layer, each ``[operator, status, result, attributes, reads, changed facets]``;
        ``weights``, their types; and for each layer the ``names`` of all of both. A read is the index of a node of the
        side, or words; a negative number -1 - i means weight i.
    """
    sides = [Side(before, *highlights_of(difference, 0))]
    if after is not None:
        sides.append(Side(after, *highlights_of(difference, 1)))
    folded: dict[object, list[int]] = {}
    last = max(side.segments.layers for side in sides)
    for layer in range(last):
        folded.setdefault(tuple(side.likeness(layer) for side in sides), []).append(layer)
    groups = [_group("before the layers" if last else "all operators", [], [BEFORE], sides)]
    groups += [_group(layers_in_words(layers), layers, layers, sides) for layers in folded.values()]
    if last:
        groups.append(_group("after the layers", [], [AFTER], sides))
    return {"titles": list(titles), "groups": [group for group in groups if group["rows"]]}


def _group(title: str, layers: list[int], segments: list[int], sides: Sequence[Side]) -> dict[str, Any]:
    shown: list[list[Node]] = []
    described = []
    priorities: dict[str, int] = {}
    for side in sides:
        there = [segment for segment in segments if segment in side.members]
        nodes = side.ordered(there[0], priorities) if there else []
        priorities = {side.partner(node.index): place for place, node in enumerate(nodes)}
        shown.append(nodes)
        described.append(side.describe(there, nodes))
    counts = Counter(node[1] for side in described for node in side["nodes"])
    changes = {status: counts[status] for status in ("removed", "added", "changed") if counts[status]}
    # An operator that changed stands on both sides.
    changes |= {"changed": -(-changes["changed"] // 2)} if "changed" in changes else {}
    rows = _rows_of(sides, shown) if len(sides) == 2 else [[place] for place in range(len(shown[0]))]
    return {"title": title, "layers": layers, "changes": changes, "sides": described, "rows": rows}


def _rows_of(sides: Sequence[Side], shown: Sequence[Sequence[Node]]) -> list[list[int | None]]:
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
    for row, other in [*pairs, (len(shown[0]), len(shown[1]))]:
        mine, theirs = range(left, row), range(right, other)
        rows += [[*pair] for pair in zip_longest(mine, theirs)]
        rows.append([row, other])
        left, right = row + 1, other + 1
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
    rising: list[tuple[int, int]] = []
    step = ends[-1] if ends else None
    while step is not None:
        rising.append(pairs[step])
        step = before[step]
    return rising[::-1]
