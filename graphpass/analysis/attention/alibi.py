"""Recognize ALiBi: a bias linear in the key's position, with a slope per head.

Source: Press et al., "Train Short, Test Long: Attention with Linear Biases", arXiv:2108.12409.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NoReturn

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
def alibi_slopes(bias: Expr, head: Expr, key: Expr) -> tuple[float, ...] | None:
    """Return the slope of ALiBi for each head.

    Args:
        bias: Number added to a score, in a batch without padding. A constant per head is ignored, because it does not
            change the softmax.
        head: Symbolic index of the head.
        key: Symbolic index of the key.

    Returns:
        Slopes ``[heads]``; ``None`` if the bias is not linear, or has the same slope for all heads.
    """
    import numpy

    from graphpass.analysis.symbolic.evaluate import value_at

    parts, heads = set(walk(bias)), head.args[1].as_number
    if key not in parts or not isinstance(heads, int):
        return None
    by_head = []
    for place in range(heads):
        slopes = []
        for step in _STEPS:
            lengths = {part: step[part.args[0]] for part in parts if part.op == "length" and part.args[0] in step}
            keys = range(step["past"] + step["length"])
            try:
                with numpy.errstate(all="ignore"):
                    values = [value_at(bias, {**lengths, head: place, key: position}, _no_input) for position in keys]
            except (KeyError, IndexError, OverflowError, ValueError, ZeroDivisionError):
                return None
            slopes += numpy.diff(values).tolist()
        if not numpy.allclose(slopes, slopes[0], rtol=_TOLERANCE, atol=0):
            return None
        by_head.append(float(slopes[0]))
    return tuple(by_head) if len(set(by_head)) > 1 else None


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
