"""Compute the lengths of a model's step, and elements and masks in these lengths."""

from __future__ import annotations

from graphpass.analysis.attention.effective_mask import attention_mask
from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.mask import AttentionMask
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_lengths import Length, step_elements, step_lengths
from graphpass.analysis.symbolic.elements import Elements
from graphpass.analysis.symbolic.expressions import ZERO, Expr
from graphpass.analysis.symbolic.step import is_input
from graphpass.ir.graph import Value
from graphpass.ir.model import Model

#: Axes of a mask of attention.
_RANK = 4


def find_elements(model: Model) -> Elements:
    """Return the symbolic elements of the tensors of ``model``, for `Model.analysis`."""
    return step_elements(model, analyze_caches(model).caches)


def find_masks(model: Model) -> tuple[AttentionMask, ...]:
    """Return the effective masks in the order of `find_attention`, for `Model.analysis`."""
    elements = model.analysis(find_elements)
    return tuple(attention_mask(elements, attention) for attention in model.analysis(find_attention))


def given_mask(model: Model) -> Value | None:
    """Return the input ``[batch, 1, length, total]`` that is the mask of every attention, for `Model.analysis`.

    Returns:
        The input, of booleans or of numbers to add; ``None`` if a mask has other parts, or several inputs.
    """
    caches = {cache.read for cache in analyze_caches(model).caches}
    wide = [value for name, value in model.graph.parameters.items() if value.rank == _RANK and name not in caches]
    if len(wide) != 1 or not caches:
        return None
    name = model.graph.producer(wide[0]).name

    def is_given(mask: AttentionMask) -> bool:
        scope = mask.scope
        places = {(name, scope.row, head, scope.query, scope.key) for head in (ZERO, scope.head)}
        parts = [part for part in (mask.visible, mask.bias) if part.op != "number"]
        return not mask.misses and len(parts) == 1 and is_input(parts[0]) and parts[0].args in places

    masks = model.analysis(find_masks)
    return wide[0] if masks and all(map(is_given, masks)) else None


def find_step_lengths(model: Model) -> dict[Expr, Length]:
    """Return the lengths of a step by free dimension of inputs, for `Model.analysis`."""
    return step_lengths(model, analyze_caches(model).caches)
