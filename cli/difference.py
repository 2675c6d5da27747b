"""How two models differ, as text and as JSON; ``graphpass/reports/schemas/diff.json`` describes it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from graphpass.reports.difference import OTHER, sections_of, unchanged_in_words

from .console import columns

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.reports.diff import Change, Difference

__all__ = ["as_json", "as_text"]

#: How many changes of one kind are told, unless all are asked for.
_TOLD = 12


def as_json(before: Model, after: Model, difference: Difference) -> dict[str, Any]:
    """The object that ``diff --format json`` prints."""
    weights = asdict(difference.weights) | {"unchanged_percent": difference.weights.unchanged_percent}
    told = asdict(difference) | {"weights": weights}
    kinds = [{"kind": kind, "before": old, "after": new} for kind, old, new in difference.kinds]
    return {"before": str(before.path), "after": str(after.path), "same": difference.same, **told, "kinds": kinds}


def as_text(before: Model, after: Model, difference: Difference, *, unfolded: bool = False) -> str:
    """What ``graphpass diff`` prints.

    Args:
        before: The first model.
        after: The second.
        difference: How they differ.
        unfolded: Whether all changes are told.
    """
    lines = [f"{before.path} -> {after.path}: {'the same' if difference.same else 'they differ'}", ""]
    if difference.dialects[0] != difference.dialects[1]:
        lines += [f"format: {difference.dialects[0]} -> {difference.dialects[1]}", ""]
    if difference.kinds:
        lines.append("operators by kind")
        lines += columns([(f"{new - old:+d}", kind, f"{old} -> {new}") for kind, old, new in difference.kinds])
        lines.append("")
    for name, changes in sections_of(difference).items():
        if changes:
            lines += [f"{name} ({len(changes)})", *_rows(changes, unfolded=unfolded), ""]
    if difference.other:
        lines += [OTHER, ""]
    return "\n".join([*lines, unchanged_in_words(difference.weights)])


def _rows(changes: tuple[Change, ...], *, unfolded: bool) -> list[str]:
    told = changes if unfolded else changes[:_TOLD]
    lines = [line for change in told for line in _lines(change)]
    left = len(changes) - len(told)
    return [*lines, f"  ... {left} more; --all tells them"] if left else lines


def _lines(change: Change) -> list[str]:
    before, after = change.before, change.after
    if before is None or after is None:
        facets = after or before or {}
        said = [facets[key] for key in ("kind", "type", "shape", "is", "value") if key in facets]
        return [f"  {'+' if before is None else '-'} {change.name}  {' '.join(said)}".rstrip()]
    rows = [f"{key}: {before.get(key, 'none')} -> {after.get(key, 'none')}" for key in {**before, **after}]
    if len(rows) == 1:
        return [f"  ~ {change.name}  {rows[0]}"]
    return [f"  ~ {change.name}", *(f"      {row}" for row in rows)]
