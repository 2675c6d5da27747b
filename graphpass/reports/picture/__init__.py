"""Pictures of one or two models, as data for ``picture.js``, with equal layers folded."""

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
    """Return a picture of a model, or of two models side by side.

    Args:
        titles: A name for each model.
        before: The model.
        after: The model to show beside it.
        difference: The differences, from `graphpass.reports.diff.diff_models`.

    Returns:
        An object with ``titles`` and ``groups`` of layers, in execution order.

        | key of a group | value |
        | --- | --- |
        | ``title`` | text |
        | ``layers`` | numbers of the folded layers; empty for operators outside of layers |
        | ``changes`` | number of operators of one layer by status |
        | ``sides`` | one for each model |
        | ``rows`` | indices of the nodes in one row, one for each side |

        | key of a side | value |
        | --- | --- |
        | ``nodes`` | operators of the first layer: ``[operator, status, result, attributes, reads, changed facets]`` |
        | ``weights`` | types of the weights |
        | ``names`` | for each layer, names of the nodes, then of the weights |

        A read is the index of a node, -1 - i for weight i, or text.
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
        priorities = {side.partner(node.index): position for position, node in enumerate(nodes)}
        shown.append(nodes)
        described.append(side.describe(there, nodes))
    counts = Counter(node[1] for side in described for node in side["nodes"])
    changes = {status: counts[status] for status in ("removed", "added", "changed") if counts[status]}
    # A changed operator is counted on both sides.
    changes |= {"changed": -(-changes["changed"] // 2)} if "changed" in changes else {}
    rows = _rows_of(sides, shown) if len(sides) == 2 else [[index] for index in range(len(shown[0]))]
    return {"title": title, "layers": layers, "changes": changes, "sides": described, "rows": rows}


def _rows_of(sides: Sequence[Side], shown: Sequence[Sequence[Node]]) -> list[list[int | None]]:
    """Align the operators of two models.

    Operators in both models share a row. Rows between them have the operators that only one model has.

    Args:
        sides: The models.
        shown: Operators of each model, in display order.

    Returns:
        Indices into ``shown`` of each row, ``None`` for a model without the operator.
    """
    indices = {sides[1].key(node.index): index for index, node in enumerate(shown[1])}
    keys = [sides[0].partner(node.index) for node in shown[0]]
    pairs = _rising([(index, indices[key]) for index, key in enumerate(keys) if key in indices])
    rows: list[list[int | None]] = []
    left = right = 0
    for row, other in [*pairs, (len(shown[0]), len(shown[1]))]:
        removed, added = range(left, row), range(right, other)
        rows += [[*pair] for pair in zip_longest(removed, added)]
        rows.append([row, other])
        left, right = row + 1, other + 1
    return rows[:-1]


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence of pairs with ascending second elements."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int | None] = []
    for number, (_, second) in enumerate(pairs):
        length = bisect_left(tails, second)
        tails[length : length + 1], ends[length : length + 1] = [second], [number]
        before.append(ends[length - 1] if length else None)
    rising: list[tuple[int, int]] = []
    step = ends[-1] if ends else None
    while step is not None:
        rising.append(pairs[step])
        step = before[step]
    return rising[::-1]
