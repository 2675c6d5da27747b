"""Compare numbers with a small effect on logits: scales, soft caps, epsilons of norms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.equations.norms import find_epsilons

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.verify.difference import Tolerance

#: Relative tolerance of numbers in f32, and in coarser types.
_F32, _COARSE = 1e-4, 1e-2

_COARSE_TOLERANCE = 1e-2


def unlike_numbers(reference: Model, candidate: Model, tolerance: Tolerance) -> tuple[str, str] | None:
    """Return the location of the first number that differs, and the difference, as text.

    Attention blocks are paired in execution order, norms by ascending epsilon. Numbers that are not known in one of the
    graphs are not compared.

    Args:
        reference: The reference model.
        candidate: The candidate model.
        tolerance: Tolerance of the comparison; from 1e-2 on, numbers count as coarser than f32.
    """
    allowed = _COARSE if tolerance.relative >= _COARSE_TOLERANCE else _F32
    for place, name, left, right in (*_of_attention(reference, candidate), *_of_norms(reference, candidate)):
        if not np.isclose(left, right, rtol=allowed, atol=0):
            return place, f"its {name} is {left:.7g}, the candidate's {right:.7g}"
    return None


def _of_attention(reference: Model, candidate: Model) -> Iterator[tuple[str, str, float, float]]:
    left, right = (analyze_caches(model).attention for model in (reference, candidate))
    for first, second in zip(left, right, strict=True) if len(left) == len(right) else ():
        for name in ("scale", "softcap"):
            numbers = getattr(first, name), getattr(second, name)
            if None not in numbers:
                yield f"attention {first.node}", name, *numbers


def _of_norms(reference: Model, candidate: Model) -> Iterator[tuple[str, str, float, float]]:
    left, right = (sorted(model.analysis(find_epsilons), key=lambda norm: norm[1]) for model in (reference, candidate))
    if len(left) == len(right):
        for (name, first), (_, second) in zip(left, right, strict=True):
            yield f"norm {name}", "epsilon", first, second
