"""Compare two arrays within a tolerance."""

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

#: Tolerances of logits of one model on two runtimes by the type of computation, coarsest first: about ten times the
#: differences measured on the fixtures (f32 1e-5 to 1e-4, f16 1e-2 to 2e-2).
_ROUNDING = {"bf16": 0.2, "f16": 0.05}
_F32 = 1e-3

#: Tolerances of logits of a model in f32 and the same model with rounded weights. The largest differences measured on
#: the fixtures are 0.15 in f16 (12 layers; 0.12 if only weights are rounded) and 0.43 in bf16 (gpt2).
_ROUNDED_WEIGHTS: dict[Half, float] = {"bf16": 0.6, "f16": 0.2}


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The allowed difference ``absolute + relative * |reference|``.

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
        """Return the tolerance for the coarsest type that the models compute in.

        - Types of constants are ignored: weights that are stored in f16 and converted have equal values in all models.
        - If a model computes in f16 or bf16 and another stores weights in f32, the weights are rounded, too, and the
          tolerance of rounded weights applies.
        - 16-bit types of an ONNX reference are ignored, since it runs in f32 unless the candidate is in f16.
        - Devices other than CPU count as f16: NPUW keeps caches in f16, and GPUs approximate functions.
        - On QNN weights in f32 count as rounded to f16.

        Args:
            reference: The reference model.
            candidates: The other models.
            device: The device of the candidates.
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
        if device == QNN and "f32" in stored[0]:  # HTP rounds weights to f16
            return cls(_ROUNDED_WEIGHTS["f16"], _ROUNDED_WEIGHTS["f16"], "f16")
        types |= set() if device == "CPU" else {"f16"}
        rounding = next((rounding for element_type, rounding in _ROUNDING.items() if element_type in types), _F32)
        return cls(rounding, rounding)


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two arrays of one shape.

    Attributes:
        largest: Largest difference between finite values.
        index: Index of the first element outside the tolerance, in row-major order; ``None`` if all are within it.
    """

    largest: float
    index: tuple[int, ...] | None


def difference(
    reference: NDArray[Any], candidate: NDArray[Any], counts: NDArray[np.bool_] | None, tolerance: Tolerance
) -> Difference:
    """Compare two arrays of one shape; NaN equals NaN, an infinity the same infinity.

    Args:
        reference: Any numeric type.
        candidate: Any numeric type, same shape.
        counts: Mask over the leading axes of the elements to compare; ``None`` for all.
        tolerance: The tolerance.

    Returns:
        The largest difference of finite elements, and the index of the first that disagree.
    """
    left, right = reference.astype(np.float64), candidate.astype(np.float64)
    considered = _considered(np.ones(left.shape, np.bool_), counts)
    agree = np.isclose(right, left, rtol=tolerance.relative, atol=tolerance.absolute, equal_nan=True)
    finite = considered & np.isfinite(left) & np.isfinite(right)
    largest = float(np.abs(left[finite] - right[finite]).max(initial=0.0))
    parted = np.argwhere(considered & ~agree)
    return Difference(largest, tuple(int(axis) for axis in parted[0]) if len(parted) else None)


def _considered(elements: NDArray[np.bool_], counts: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """Return ``elements`` masked by ``counts`` over the leading axes; ``None`` for no mask."""
    return (
        elements if counts is None else elements & counts.reshape(counts.shape + (1,) * (elements.ndim - counts.ndim))
    )


class OutputComparer:
    """Compares outputs of two models step by step.

    Attributes:
        tolerance: The tolerance.
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
            place: Indices of the sequence and the step.
            name: Name of the output.
            reference: The reference's output.
            candidate: The candidate's output.
            counts: See `difference`.

        Returns:
            The difference; ``None`` if shapes are equal and all compared elements are within the tolerance.
        """
        if reference.shape != candidate.shape:
            shapes = f"shape {list(candidate.shape)}, the reference has {list(reference.shape)}"
            return Divergence(*place, name, (), None, None, shapes)
        unequal = difference(reference, candidate, counts, self.tolerance)
        self.largest = max(self.largest, unequal.largest)
        if unequal.index is None:
            return None
        values = float(reference[unequal.index]), float(candidate[unequal.index])
        return Divergence(*place, name, unequal.index, *values, f"reference {values[0]:.7g}, candidate {values[1]:.7g}")


class PooledComparer(OutputComparer):
    """Accumulates the differences of outputs over all steps, for models that differ by rounding.

    Rounding may change single logits by large amounts, for example where the scores of two experts are nearly equal,
    but not the root mean square of the differences of all logits.
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
        """Accumulate the differences of one output.

        Args:
            place: As `OutputComparer.compare`.
            name: Name of the output, by which differences are accumulated.
            reference: As `OutputComparer.compare`.
            candidate: As `OutputComparer.compare`.
            counts: See `difference`.

        Returns:
            The divergence of other shapes, NaN or infinities; ``None`` without one.
        """
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
        """Return the root mean square of each output's differences, relative to the reference's."""
        return {name: (moved / (self._sizes[name] or 1.0)) ** 0.5 for name, moved in self._moved.items()}
