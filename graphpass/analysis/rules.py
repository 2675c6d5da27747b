"""Replace what patterns match."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpass.analysis.pattern import Match, Pattern
    from graphpass.ir.graph import Graph
    from graphpass.ir.rewriter import Handle, Rewriter, Writer


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """Replaces each match of a pattern.

    Attributes:
        counted: Statistic of the replaced matches.
        pattern: The subgraph.
        build: Makes the replacement.
        fits: Reports whether a match is replaced, before any is.
    """

    counted: str
    pattern: Pattern
    build: Callable[[Writer, Match], Handle]
    fits: Callable[[Graph, Match], bool] = lambda _graph, _match: True


def rewrite(rewriter: Rewriter, rules: Iterable[RewriteRule]) -> dict[str, int]:
    """Apply ``rules`` in order; return the statistics that are not 0."""
    counts: dict[str, int] = {}
    for rule in rules:
        graph = rewriter.graph
        for match in [match for match in rule.pattern.find(graph) if rule.fits(graph, match)]:
            made = rule.build(rewriter.under(match.node.name), match)
            rewriter.replace(match.node.outputs[0], made)
            counts[rule.counted] = counts.get(rule.counted, 0) + 1
    return counts
