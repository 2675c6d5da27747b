"""Rewrite rules: patterns and their replacements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpass.analysis.pattern import Match, Pattern
    from graphpass.ir.graph import Graph
    from graphpass.ir.rewriter import Rewriter
    from graphpass.ir.writer import Handle, Writer


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """A pattern and its replacement.

    Attributes:
        counted: Name of the statistic that counts replaced matches.
        pattern: The pattern.
        build: Writes the replacement of a match; returns its result.
        fits: Returns whether to replace a match; evaluated for all matches before the first replacement.
    """

    counted: str
    pattern: Pattern
    build: Callable[[Writer, Match], Handle]
    fits: Callable[[Graph, Match], bool] = lambda _graph, _match: True


def rewrite(rewriter: Rewriter, rules: Iterable[RewriteRule]) -> dict[str, int]:
    """Replace the matches of ``rules``.

    Args:
        rewriter: Rewriter of the model. Its view does not change, so that no rule matches replacements.
        rules: Rules in the order of application.

    Returns:
        Number of replacements by statistic, without zeros.
    """
    counts: dict[str, int] = {}
    for rule in rules:
        graph = rewriter.graph
        for match in [match for match in rule.pattern.find(graph) if rule.fits(graph, match)]:
            made = rule.build(rewriter.under(match.node.name), match)
            rewriter.replace(match.node.outputs[0], made)
            counts[rule.counted] = counts.get(rule.counted, 0) + 1
    return counts
