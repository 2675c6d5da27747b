"""How two models differ, as a page and as one line a change."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from graphpass.reports.frame import framed

if TYPE_CHECKING:
    from graphpass.reports.diff import Change, Difference, WeightChanges

__all__ = ["render_difference", "sections_of", "unchanged_in_words"]

OTHER = "nothing above differs, but the graphs do: in their documentation, or in the order of nodes, inputs or outputs"


def sections_of(difference: Difference) -> dict[str, tuple[Change, ...]]:
    """The changes by what they are changes of, in the order in which to tell them."""
    return {
        "inputs": difference.inputs,
        "outputs": difference.outputs,
        "caches": difference.caches,
        "operators": difference.operators,
        "metadata": difference.metadata,
        "weights": difference.weights.changes,
    }


def unchanged_in_words(weights: WeightChanges) -> str:
    """``unchanged weights: 99.98 % (1,234 of 1,235 bytes)``."""
    total = weights.unchanged_bytes + weights.changed_bytes
    return f"unchanged weights: {weights.unchanged_percent:.2f} % ({weights.unchanged_bytes:,} of {total:,} bytes)"


def render_difference(difference: Difference, before: str, after: str) -> str:
    """A self-contained HTML page.

    Args:
        difference: What to show.
        before: What the page calls the first model.
        after: What it calls the second.
    """
    if difference.same:
        parts = ["<p>They are the same.</p>"]
    else:
        parts = [_kinds(difference), *(_section(name, found) for name, found in sections_of(difference).items())]
        parts += [f"<p>{escape(OTHER)}</p>"] if difference.other else []
    parts.append(f"<p>{escape(unchanged_in_words(difference.weights))}</p>")
    return framed("what differs", f"{before} \u2192 {after}", parts)


def _kinds(difference: Difference) -> str:
    if not difference.kinds:
        return ""
    rows = [
        f"<tr><td>{escape(kind)}</td><td>{old}</td><td>{new}</td><td>{new - old:+d}</td></tr>"
        for kind, old, new in difference.kinds
    ]
    head = "<tr><th>operators</th><th>before</th><th>after</th><th></th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _section(name: str, changes: tuple[Change, ...]) -> str:
    if not changes:
        return ""
    rows = "".join(_row(change) for change in changes)
    head = "<tr><th></th><th>name</th><th>before</th><th>after</th></tr>"
    opened = " open" if name != "operators" else ""
    return f"<details{opened}><summary>{name} ({len(changes)})</summary><table>{head}{rows}</table></details>"


def _row(change: Change) -> str:
    mark = "+" if change.before is None else "-" if change.after is None else "~"
    cells = (
        "<br>".join(f"{escape(key)}: {escape(words)}" for key, words in (facets or {}).items())
        for facets in (change.before, change.after)
    )
    return f"<tr><td>{mark}</td><td>{escape(change.name)}</td><td>{'</td><td>'.join(cells)}</td></tr>"
