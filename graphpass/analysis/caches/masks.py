"""Compute the lengths of a model's step, and elements and masks in these lengths."""

from __future__ import annotations

from graphpass.analysis.attention.effective_mask import attention_mask
from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.mask import AttentionMask
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_lengths import Length, step_elements, step_lengths
from graphpass.analysis.symbolic.elements import Elements
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.ir.model import Model


def find_elements(model: Model) -> Elements:
    """Return the symbolic elements of the tensors of ``model``, for `Model.analysis`."""
    return step_elements(model, analyze_caches(model).caches)


def find_masks(model: Model) -> tuple[AttentionMask, ...]:
    """Return the effective masks in the order of `find_attention`, for `Model.analysis`."""
    elements = model.analysis(find_elements)
    return tuple(attention_mask(elements, attention) for attention in model.analysis(find_attention))


def find_step_lengths(model: Model) -> dict[Expr, Length]:
    """Return the lengths of a step by free dimension of inputs, for `Model.analysis`."""
    return step_lengths(model, analyze_caches(model).caches)
