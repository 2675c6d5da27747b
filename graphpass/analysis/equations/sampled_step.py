"""Choose the lengths and inputs of one step, to compute tensors of it ahead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_lengths import Length, step_lengths
from graphpass.analysis.equations.evaluation import Evaluation
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.rounding import Array
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.graph import Value
from graphpass.ir.model import Model


@dataclass(frozen=True, slots=True)
class SampledStep:
    """Lengths of one step: ``length`` new tokens of ``batch`` sequences after ``past`` positions."""

    batch: int
    past: int
    length: int

    @property
    def total(self) -> int:
        """Return the number of positions after the step."""
        return self.past + self.length


def find_step_lengths(model: Model) -> dict[Expr, Length]:
    """Return the lengths that free dimensions of inputs are, for `Model.analysis`."""
    return step_lengths(model, analyze_caches(model).caches)


def evaluation_at(model: Model, step: SampledStep, known: Mapping[Value, Array]) -> Evaluation:
    """Return the tensors of one step, computed from ``known`` ones and from lengths."""
    lengths = model.analysis(find_step_lengths)

    def number(dimension: Expr) -> int | None:
        length = lengths.get(dimension)
        return None if length is None else int(getattr(step, length))

    return Evaluation(model.graph, model.analysis(infer_sizes), number, known)
