"""Find the factors of scores on operands, on their product, and in a soft cap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from graphpass.analysis.attention.axis_trace import holds_integers
from graphpass.analysis.attention.bare_operands import scale_of
from graphpass.analysis.attention.find import Scores
from graphpass.ir.graph import Graph, Value
from graphpass.ir.operators import CASTS, LAYOUT
from graphpass.ir.values import is_activation, is_value_preserving


class Scaling(NamedTuple):
    """Scale, factors and soft cap: fields of `graphpass.ir.cache.AttentionBlock`."""

    scale: float | None
    factors: tuple[float, ...] = ()
    softcap: float | None = None


def scaling_of(factors: Sequence[float | None], softcap: float | None = None) -> Scaling:
    """Return the scaling by the product of ``factors``.

    Args:
        factors: Factors of the scores, in order of application; ``None`` for an unknown factor, which makes the scale
            unknown.
        softcap: Bound of the scores; ``None`` without a soft cap.
    """
    known = [factor for factor in factors if factor is not None]
    if len(known) < len(factors):
        return Scaling(None, (), softcap)
    rounded = tuple(_rounded(factor) for factor in known if factor != 1)
    return Scaling(_rounded(math.prod(known)), rounded if len(rounded) > 1 else (), softcap)


def scores_scaling(graph: Graph, scores: Scores) -> Scaling:
    """Return the scaling of decomposed scores by factors before and after their product.

    Args:
        graph: The graph.
        scores: The path from the product to the Softmax, as `read_scores` returns it.
    """
    before = [factor for value in scores.product.inputs for factor in operand_factors(graph, value)]
    after = [scale.factor(graph) for scale in reversed(scores.scales)]
    if scores.cap is None:
        return scaling_of([*before, *after])
    caps = [scale.factor(graph) for scale in scores.cap_scales]
    if any(cap is None for cap in caps):
        return Scaling(None)
    cap = math.prod(cap for cap in caps if cap is not None)
    if None in after:
        return Scaling(None, (), _rounded(cap))
    known = [factor for factor in after if factor is not None]
    # The division by the cap before the Tanh is a separate factor, or combined with the scale.
    division = next((factor for factor in known if math.isclose(factor * cap, 1.0, rel_tol=1e-3)), None)
    if division is not None:
        known.remove(division)
    else:
        known = [math.prod(known) * cap]
    return scaling_of([*before, *known], _rounded(cap))


def operand_factors(graph: Graph, value: Value | None) -> list[float | None]:
    """Return the factors of a query or key; ``None`` for factors that are not constant.

    Args:
        graph: The graph.
        value: The operand of the product or of the fused operator; ``None`` if omitted, which has no factors.
    """
    factors: list[float | None] = []
    is_laid_out = False
    while value is not None:
        node = graph.producer(value)
        if node.op in {"Multiply", "Divide"}:
            scaled = scale_of(graph, node)
            if scaled is None or holds_integers(graph, scaled[0]):
                break
            factor = scaled[1].factor(graph)
            if factor is None and is_laid_out:
                # The factor is part of the operand's computation, such as a normalization.
                break
            factors.append(factor)
            value = scaled[0]
        elif is_value_preserving(node):
            value = node.inputs[0]
        elif node.op in LAYOUT - CASTS:
            is_laid_out, value = True, node.inputs[0]
        elif node.op == "Add" and sum(computed := [is_activation(graph, value) for value in node.inputs]) == 1:
            # OpenVINO moves a scale into the sum with a bias: s * x + s * bias.
            is_laid_out, value = True, node.inputs[computed.index(True)]
        else:
            break
    return factors


def _rounded(number: float) -> float:
    """Return ``number`` in six significant digits, the precision of f32 after a few operations."""
    return float(f"{number:.6g}")
