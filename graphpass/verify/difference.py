"""Compare two arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphpass.dialects.rounding import Half
from graphpass.ir.model import Model
from graphpass.ir.values import HALVES
from graphpass.runtime.backends.request import QNN
from graphpass.verify.comparison import Divergence

#: Distances between logits of one model on two runtimes that compute in a type, coarsest type first: about ten times
#: those measured on the fixtures (f32 1e-5 to 1e-4, f16 1e-2 to 2e-2).
_ROUNDING = {"bf16": 0.2, "f16": 0.05}
_F32 = 1e-3

#: Distance between logits of a model in f32 and the same with weights rounded. The largest measured on the fixtures are
#: 0.15 in f16, of 12 layers, with weights alone rounded 0.12; and 0.43 in bf16, of gpt2.
_ROUNDED_WEIGHTS: dict[Half, float] = {"bf16": 0.6, "f16": 0.2}


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Allows a difference of ``absolute + relative * |reference|``.

    Attributes:
        absolute: Absolute tolerance.
        relative: Relative tolerance.
        rounded_to: The type to which the weights of only one model are rounded.
    """

    absolute: float
    relative: float
    rounded_to: Half | None = None

    @classmethod
    def for_models(cls, reference: Model, *candidates: Model, device: str = "CPU") -> Tolerance:
        """Return the effect of rounding in the coarsest type of the models.

        NPUW keeps caches in f16, and GPUs have coarser functions than CPUs, so devices other than CPUs count as f16.

        Constants do not count: weights that are stored in f16 and converted are the same numbers in every model. But
        if one model computes in f16 or bf16 with weights that are f32 in another, those are rounded, too. References in
        ONNX run in f32 unless the candidate is in f16, and candidates in bf16 do: what they round is constants then,
        tables among them.
        """
        types: set[str] = set()
        stored: list[set[str]] = []
        for place, model in enumerate((reference, *candidates)):
            nodes = model.graph.nodes
            own = {value.element_type for node in nodes if node.op != "Constant" for value in node.outputs}
            types |= own - HALVES if place == 0 and model.dialect == "onnx" else own
            stored.append({node.outputs[0].element_type for node in model.graph.of_op("Constant")})
        for half, rounding in _ROUNDED_WEIGHTS.items():
            if half in types and len({half in names for names in stored}) > 1:
                return cls(rounding, rounding, half)
        if device == QNN and "f32" in stored[0]:  # HTP rounds weights, too
            return cls(_ROUNDED_WEIGHTS["f16"], _ROUNDED_WEIGHTS["f16"], "f16")
        types |= set() if device == "CPU" else {"f16"}
        rounding = next((rounding for element_type, rounding in _ROUNDING.items() if element_type in types), _F32)
        return cls(rounding, rounding)


@dataclass(frozen=True, slots=True)
class Difference:
    """Measures how two arrays of one shape differ.

    Attributes:
        largest: Largest difference between finite values.
        index: First place outside the tolerance, in row-major order; ``None`` if there is none.
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
        counts: Mask over the leading axes of the elements to compare; ``None`` for all.
        tolerance: The tolerance.
    """
    left, right = reference.astype(np.float64), candidate.astype(np.float64)
    considered = _considered(np.ones(left.shape, np.bool_), counts)
    agree = np.isclose(right, left, rtol=tolerance.relative, atol=tolerance.absolute, equal_nan=True)
    finite = considered & np.isfinite(left) & np.isfinite(right)
    largest = float(np.abs(left[finite] - right[finite]).max(initial=0.0))
    parted = np.argwhere(considered & ~agree)
    return Difference(largest, tuple(int(axis) for axis in parted[0]) if len(parted) else None)


def _considered(elements: NDArray[np.bool_], counts: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """Mask ``elements`` by what counts of their leading axes; ``None`` counts all."""
    return (
        elements if counts is None else elements & counts.reshape(counts.shape + (1,) * (elements.ndim - counts.ndim))
    )


class OutputComparer:
    """Compares outputs of two models.

    Attributes:
        tolerance: Differences that count as equal.
        largest: Largest difference between finite values so far.
    """

    def __init__(self, tolerance: Tolerance) -> None:
        self.tolerance = tolerance
        self.largest = 0.0

    def compare(
        self,
        place: tuple[int, int],
        name: str,
        reference: NDArray[Any],
        candidate: NDArray[Any],
        counts: NDArray[np.bool_] | None = None,
    ) -> Divergence | None:
        """Compare one output.

        Args:
            place: Numbers of sequence and step.
            name: The output's name.
            reference: The reference's output.
            candidate: The candidate's output.
            counts: See `difference`.
        """
        if reference.shape != candidate.shape:
            shapes = f"shape {list(candidate.shape)} where the reference has {list(reference.shape)}"
            return Divergence(*place, name, (), None, None, shapes)
        unequal = difference(reference, candidate, counts, self.tolerance)
        self.largest = max(self.largest, unequal.largest)
        if unequal.index is None:
            return None
        values = float(reference[unequal.index]), float(candidate[unequal.index])
        return Divergence(*place, name, unequal.index, *values, f"reference {values[0]:.7g}, candidate {values[1]:.7g}")


class PooledComparer(OutputComparer):
    """Compares outputs of a model with those of the same, rounded, all at once.

    Rounding moves single logits far where two experts tie; their size as a whole it hardly moves.
    """

    def __init__(self, tolerance: Tolerance) -> None:
        super().__init__(tolerance)
        self._moved: dict[str, float] = {}
        self._sizes: dict[str, float] = {}

    def compare(
        self,
        place: tuple[int, int],
        name: str,
        reference: NDArray[Any],
        candidate: NDArray[Any],
        counts: NDArray[np.bool_] | None = None,
    ) -> Divergence | None:
        """Pool one output; differences in shape, NaN and infinities alone are found at once."""
        if reference.shape != candidate.shape:
            return super().compare(place, name, reference, candidate, counts)
        finite = np.isfinite(reference) & np.isfinite(candidate)
        alike = np.where(finite, reference, candidate)
        if (unlike := super().compare(place, name, reference, alike, counts)) is not None:
            return unlike
        considered = _considered(finite, counts)
        left, right = (array[considered].astype(np.float64) for array in (reference, candidate))
        self.largest = max(self.largest, float(np.abs(left - right).max(initial=0.0)))
        self._moved[name] = self._moved.get(name, 0.0) + float(np.square(left - right).sum())
        self._sizes[name] = self._sizes.get(name, 0.0) + float(np.square(left).sum())
        return None

    @property
    def shares(self) -> dict[str, float]:
        """Return the share of each output that changed, by roots of mean squares."""
        return {name: (moved / (self._sizes[name] or 1.0)) ** 0.5 for name, moved in self._moved.items()}
