"""What the scores of attention are multiplied with: behind the product, before it, and within a soft cap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from graphpass.analysis.attention.bare_operands import scale_of
from graphpass.analysis.attention.match import Scores
from graphpass.analysis.attention.types import Scale
from graphpass.analysis.shapes.constants import worked_out
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.values import is_computed, keeps_elements

__all__ = ["Scaling", "operand_factors", "scaling_of", "scores_scaling"]

#: Operators that only lay an operand out.
_LAYOUT = frozenset({"Broadcast", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})

_INTEGERS = frozenset({"i4", "i8", "i16", "i32", "i64", "u4", "u8", "u16", "u32", "u64"})


@dataclass(frozen=True, slots=True)
class Scaling:
    """See the fields of the same names of `graphpass.ir.cache.AttentionBlock`."""

    scale: float | None
    factors: tuple[float, ...] = ()
    softcap: float | None = None


def scaling_of(factors: Sequence[float | None], softcap: float | None = None) -> Scaling:
    """The scaling by all of ``factors``; ``None`` among them is one that is not known."""
    known = [factor for factor in factors if factor is not None]
    if len(known) < len(factors):
        return Scaling(None, (), softcap)
    told = tuple(_told(factor) for factor in known if factor != 1)
    return Scaling(_told(math.prod(known)), told if len(told) > 1 else (), softcap)


def scores_scaling(graph: Graph, scores: Scores) -> Scaling:
    """How a decomposed attention scales its scores, before the product and behind it."""
    product = scores.product
    assert product is not None
    before = [factor for value in product.inputs for factor in operand_factors(graph, value)]
    behind = [_factor(graph, scale) for scale in reversed(scores.scales)]
    if scores.cap is None:
        return scaling_of([*before, *behind])
    caps = [_factor(graph, scale) for scale in scores.cap_scales]
    if any(cap is None for cap in caps):
        return Scaling(None)
    cap = math.prod(one for one in caps if one is not None)
    if None in behind:
        return Scaling(None, (), _told(cap))
    known = [factor for factor in behind if factor is not None]
    # The scores are divided by the cap before the Tanh: by itself, or in one number with their scale.
    division = next((factor for factor in known if math.isclose(factor * cap, 1.0, rel_tol=1e-3)), None)
    if division is not None:
        known.remove(division)
    else:
        known = [math.prod(known) * cap]
    return scaling_of([*before, *known], _told(cap))


def operand_factors(graph: Graph, value: Value | None) -> list[float | None]:
    """What ``value``, a query or key, was multiplied with before it was laid out as it is.

    ``None`` stands for a factor that is computed from what the model is given.
    """
    factors: list[float | None] = []
    is_laid_out = False
    while value is not None:
        node = graph.producer(value)
        if node.op in {"Multiply", "Divide"}:
            scaled = scale_of(graph, node)
            if scaled is None or _holds_integers(graph, scaled[0]):
                break
            factor = _factor(graph, scaled[1])
            if factor is None and is_laid_out:
                # Part of how the operand itself is computed, such as a normalization.
                break
            factors.append(factor)
            value = scaled[0]
        elif node.op in _LAYOUT or keeps_elements(node):
            is_laid_out = is_laid_out or node.op in _LAYOUT
            value = node.inputs[0]
        elif (biased := _before_bias(graph, node)) is not None:
            is_laid_out, value = True, biased
        else:
            break
    return factors


def _before_bias(graph: Graph, node: Node) -> Value | None:
    """What ``node`` adds a bias to, into which OpenVINO moves a scale that follows: ``s * x + s * bias``."""
    if node.op != "Add":
        return None
    computed = [value for value in node.inputs if is_computed(graph, value)]
    return computed[0] if len(computed) == 1 else None


def _holds_integers(graph: Graph, value: Value) -> bool:
    """Whether ``value`` is a product of whole numbers, of which a scale makes what it stands for."""
    node = graph.producer(value)
    source = node.inputs[0] if node.op == "Convert" else None
    return source is not None and source.element_type in _INTEGERS


def _factor(graph: Graph, scale: Scale) -> float | None:
    number = worked_out(graph, scale.value)
    if number is None or not scale.divides:
        return number
    return 1 / number if number else None


def _told(number: float) -> float:
    """``number`` to six digits: what f32 holds of it after a few operations."""
    return float(f"{number:.6g}")
