"""Highlights of operators by their changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from graphpass.reports.diff.changes import Change, ModelDifference

Status = Literal["same", "changed", "removed", "added", "renamed"]


@dataclass(frozen=True, slots=True)
class Highlight:
    """Highlight of one operator.

    Attributes:
        status: Kind of change.
        partner: Name of the operator in the other model; ``None`` if not renamed.
        facets: The differing facets, in this model.
    """

    status: Status
    partner: str | None = None
    facets: Mapping[str, str] | None = None


def highlights_of(difference: ModelDifference | None, side: int) -> tuple[dict[str, Highlight], dict[str, Highlight]]:
    """Return the highlights of a model's operators, and of its inputs and outputs, by name.

    Args:
        difference: The differences; ``None`` for a picture of one model.
        side: 0 for the first model, 1 for the second.
    """
    if difference is None:
        return {}, {}
    operators = dict(_marked(difference.operators, side))
    return operators, dict(_marked((*difference.inputs, *difference.outputs), side))


def _marked(changes: Iterable[Change], side: int) -> Iterator[tuple[str, Highlight]]:
    for change in changes:
        facets = (change.before, change.after)
        mine, other = facets[side], facets[1 - side]
        if mine is None:
            continue
        if other is None:
            yield change.name, Highlight("added" if side else "removed")
        elif list(mine) == list(other) == ["name"]:
            yield mine["name"], Highlight("renamed", other["name"], mine)
        else:
            yield change.name, Highlight("changed", None, mine)
