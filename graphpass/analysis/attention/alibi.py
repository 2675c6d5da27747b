"""Recognize ALiBi: a bias linear in the key's position, with a slope per head.

Source: Press et al., "Train Short, Test Long: Attention with Linear Biases", arXiv:2108.12409.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NoReturn

from graphpass.analysis.attention.mask import Scope
from graphpass.analysis.pattern import Match, op, var
from graphpass.analysis.symbolic.expressions import Expr, walk
from graphpass.ir.graph import Graph, Value

#: Lengths, by name, of the steps for which the bias is evaluated.
_STEPS = (
    {"batch": 1, "past": 0, "length": 9},
    {"batch": 1, "past": 5, "length": 1},
    {"batch": 1, "past": 20, "length": 3},
)

_TOLERANCE = 1e-5


@lru_cache(maxsize=256)
def alibi_slopes(bias: Expr, scope: Scope, *, is_causal: bool) -> tuple[float, ...] | None:
    """Return the slope of ALiBi for each head.

    Args:
        bias: Number added to a score, in a batch without padding. A constant per head and query is ignored, because it
            does not change the softmax.
        scope: Symbolic indices in ``bias``.
        is_causal: Whether later keys are hidden, so that their bias has no effect.

    Returns:
        Slopes ``[heads]``; ``None`` if the bias is not linear, or has the same slope for all heads.
    """
    import numpy

    from graphpass.analysis.symbolic.evaluate import value_at

    parts, heads = set(walk(bias)), scope.head.args[1].as_number
    if scope.key not in parts or not isinstance(heads, int):
        return None
    by_head = []
    for place in range(heads):
        slopes = []
        for step, query in _queries(scope.query in parts):
            given = {part: step[part.args[0]] for part in parts if part.op == "length" and part.args[0] in step}
            given |= {scope.head: place, scope.query: query}
            last = step["past"] + (query if is_causal else step["length"] - 1)
            try:
                with numpy.errstate(all="ignore"):
                    values = [value_at(bias, {**given, scope.key: key}, _no_input) for key in range(last + 1)]
            except (KeyError, IndexError, OverflowError, ValueError, ZeroDivisionError):
                return None
            slopes += numpy.diff(values).tolist()
        if not numpy.allclose(slopes, slopes[0], rtol=_TOLERANCE, atol=0):
            return None
        by_head.append(float(slopes[0]))
    return tuple(by_head) if len(set(by_head)) > 1 else None


def _queries(every: bool) -> Iterator[tuple[dict[str, int], int]]:
    """Yield steps with the index of a query: the last of each, or every one."""
    for step in _STEPS:
        for query in range(0 if every else step["length"] - 1, step["length"]):
            yield step, query


#: ALiBi in the form that OpenVINO's paged attention recognizes in a branch of a Select.
_EXPOSED = op.Reshape(op.Reshape(op.Multiply(op.Constant(), var()), ...), ...)


def is_exposed(graph: Graph, mask: Value | None) -> bool:
    """Return whether a mask has ``Select(., ., Reshape(Reshape(Multiply(slopes, .))))`` upstream.

    Args:
        graph: The graph.
        mask: Input ``attention_mask`` of ScaledDotProductAttention; ``None`` if omitted, which does not match.
    """
    chosen = (node for node in graph.backward([mask], lambda node: node.inputs) if node.op == "Select")
    return any(isinstance(_EXPOSED.match(graph, node.source(port)), Match) for node in chosen for port in (1, 2))


def _no_input(part: Expr, _: tuple[int, ...]) -> NoReturn:
    raise KeyError(part)
