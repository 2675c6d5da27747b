"""Comparing two arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.model import Model

#: How far logits of one model lie apart on two runtimes that compute in a type, coarsest type first: about ten times
#: what was measured on the fixtures (f32 1e-5 to 1e-4, f16 1e-2 to 2e-2).
_ROUNDING = {"bf16": 0.2, "f16": 0.05}
_F32 = 1e-3

__all__ = ["Difference", "Tolerance", "difference"]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Values agree where ``|reference - candidate| <= absolute + relative * |reference|``."""

    absolute: float
    relative: float

    @classmethod
    def for_models(cls, *models: Model) -> Tolerance:
        """What rounding alone may do: by the coarsest type in which any of the models computes.

        Constants do not count: weights that are stored in f16 and converted are the same numbers in every model.
        """
        types = {
            value.element_type
            for model in models
            for node in model.graph.nodes
            if node.op != "Constant"
            for value in node.outputs
        }
        rounding = next((rounding for element_type, rounding in _ROUNDING.items() if element_type in types), _F32)
        return cls(rounding, rounding)


@dataclass(frozen=True, slots=True)
class Difference:
    """How two arrays of one shape differ.

    Attributes:
        largest: The largest difference between finite values.
        index: The first place outside the tolerance, in row-major order; ``None`` where there is none.
    """

    largest: float
    index: tuple[int, ...] | None


def difference(
    reference: NDArray[Any], candidate: NDArray[Any], counts: NDArray[np.bool_] | None, tolerance: Tolerance
) -> Difference:
    """Compare two arrays of one shape; NaN equals NaN, and each infinity itself.

    Args:
        reference: Any numeric type.
        candidate: Any numeric type, same shape.
        counts: Where the leading axes count; everywhere where ``None``.
        tolerance: What is still the same.
    """
    left, right = reference.astype(np.float64), candidate.astype(np.float64)
    considered = np.ones(left.shape, np.bool_)
    if counts is not None:
        considered &= counts.reshape(counts.shape + (1,) * (left.ndim - counts.ndim))
    agree = np.isclose(right, left, rtol=tolerance.relative, atol=tolerance.absolute, equal_nan=True)
    finite = considered & np.isfinite(left) & np.isfinite(right)
    largest = float(np.abs(left[finite] - right[finite]).max(initial=0.0))
    parted = np.argwhere(considered & ~agree)
    return Difference(largest, tuple(int(axis) for axis in parted[0]) if len(parted) else None)
