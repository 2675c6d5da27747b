"""Report on the differences of two models, as text, JSON (``schemas/diff.json``) and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from graphpass.ir.model import Model
from graphpass.reports.diff import Change, ModelDifference
from graphpass.reports.page import data_element, framed, picture_element
from graphpass.reports.picture import picture_of
from graphpass.reports.report import Report
from graphpass.reports.text import columns

_OTHER = "the graphs differ only in documentation, or in the order of nodes, inputs or outputs"

#: Largest number of changes in each section without ``--all``.
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Diff(Report):
    """Report on the differences of two models.

    Attributes:
        before: The first model.
        after: The second model.
        difference: The differences.

    Examples:
        >>> import graphpass
        >>> model = graphpass.load("build/fixtures/llama/onnx")
        >>> graphpass.diff(model, model.clone()).same
        True
    """

    before: Model
    after: Model
    difference: ModelDifference

    @property
    def same(self) -> bool:
        """Return whether the models do not differ."""
        return self.difference.same

    def text(self, *, unfolded: bool = False) -> str:
        """Return the text of ``graphpass diff``.

        Args:
            unfolded: Whether to list all changes, as with ``--all``.
        """
        difference = self.difference
        verdict = "the same" if difference.same else "they differ"
        lines = [f"{self.before.path} -> {self.after.path}: {verdict}", ""]
        if difference.dialects[0] != difference.dialects[1]:
            lines += [f"format: {difference.dialects[0]} -> {difference.dialects[1]}", ""]
        if difference.kinds:
            lines.append("operators by type")
            lines += columns([(f"{new - old:+d}", kind, f"{old} -> {new}") for kind, old, new in difference.kinds])
            lines.append("")
        for name, changes in _sections(difference).items():
            shown = changes if unfolded else changes[:_SHOWN]
            lines += [f"{name} ({len(changes)})", *(line for change in shown for line in _lines(change))]
            lines += [f"  ... {len(changes) - len(shown)} more; --all prints them"] if len(shown) < len(changes) else []
            lines.append("")
        if difference.other:
            lines += [_OTHER, ""]
        return "\n".join([*lines, _unchanged(difference)])

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``--format json``."""
        difference = self.difference
        weights = asdict(difference.weights) | {"unchanged_percent": difference.weights.unchanged_percent}
        facts = asdict(difference) | {"weights": weights}
        kinds = [{"kind": kind, "before": old, "after": new} for kind, old, new in difference.kinds]
        return {
            "before": str(self.before.path),
            "after": str(self.after.path),
            "same": difference.same,
            **facts,
            "kinds": kinds,
        }

    def to_html(self, before: str, after: str) -> str:
        """Return the page of ``graphpass diff --format html``.

        Args:
            before: Title of the first model.
            after: Title of the second model.
        """
        parts = page_parts([before, after], self.before, self.after, self.difference)
        return framed("differences", f"{before} \u2192 {after}", parts)


def difference_in_short(difference: ModelDifference) -> tuple[str, ...]:
    """Return a line for each kind of difference; empty if the models are the same."""
    if difference.same:
        return ()
    lines = [f"{new - old:+d} {kind}" for kind, old, new in difference.kinds]
    lines += [f"{name}: {len(changes)} changed" for name, changes in _sections(difference).items()]
    return tuple(lines) or (_OTHER,)


def page_parts(titles: Sequence[str], before: Model, after: Model, difference: ModelDifference) -> list[str]:
    """Return the contents of `Diff.to_html`, for pages that compare several pairs.

    Args:
        titles: Titles of both models in the picture.
        before: The first model.
        after: The second model.
        difference: The differences, from `graphpass.reports.diff.diff_models`.
    """
    parts = [f"<p>{escape(_unchanged(difference))}</p>"]
    if difference.same:
        return ["<p>They are the same.</p>", *parts]
    sections = {name: changes for name, changes in _sections(difference).items() if name != "operators"}
    parts += [f"<p>{escape(_OTHER)}</p>"] if difference.other else []
    parts += [picture_element(picture_of(titles, before, after, difference)), _kinds(difference)]
    return parts + [_details(name, changes) for name, changes in sections.items()]


def _sections(difference: ModelDifference) -> dict[str, tuple[Change, ...]]:
    sections = {name: getattr(difference, name) for name in ("inputs", "outputs", "caches", "operators", "metadata")}
    return {name: changes for name, changes in (sections | {"weights": difference.weights.changes}).items() if changes}


def _unchanged(difference: ModelDifference) -> str:
    """Return ``unchanged weights: 99.98 % (1,234 of 1,235 bytes)``."""
    weights = difference.weights
    total = weights.unchanged_bytes + weights.changed_bytes
    return f"unchanged weights: {weights.unchanged_percent:.2f} % ({weights.unchanged_bytes:,} of {total:,} bytes)"


def _lines(change: Change) -> list[str]:
    before, after = change.before, change.after
    if before is None or after is None:
        facets = after or before or {}
        facts = [facets[key] for key in ("kind", "type", "shape", "is", "value") if key in facets]
        return [f"  {'+' if before is None else '-'} {change.name}  {' '.join(facts)}".rstrip()]
    rows = [f"{key}: {before.get(key, 'none')} -> {after.get(key, 'none')}" for key in {**before, **after}]
    if len(rows) == 1:
        return [f"  ~ {change.name}  {rows[0]}"]
    return [f"  ~ {change.name}", *(f"      {row}" for row in rows)]


def _kinds(difference: ModelDifference) -> str:
    if not difference.kinds:
        return ""
    rows = [
        f"<tr><td>{escape(kind)}</td><td>{old}</td><td>{new}</td><td>{new - old:+d}</td></tr>"
        for kind, old, new in difference.kinds
    ]
    head = "<tr><th>operators</th><th>before</th><th>after</th><th></th></tr>"
    summary = f"<summary>operators by type ({len(rows)})</summary>"
    return f"<details>{summary}<table>{head}{''.join(rows)}</table></details>"


def _details(name: str, changes: tuple[Change, ...]) -> str:
    data = data_element([[change.name, change.before, change.after] for change in changes])
    return f'<details><summary>{name} ({len(changes)})</summary><div class="changes">{data}</div></details>'
