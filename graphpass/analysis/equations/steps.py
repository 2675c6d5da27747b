"""Choose the lengths and inputs of one step, to compute tensors of it ahead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.equations.computable import find_computable
from graphpass.analysis.equations.evaluation import Evaluation
from graphpass.analysis.equations.operators import Array
from graphpass.analysis.shapes.linear_size import Dimension
from graphpass.analysis.shapes.sizes import infer_sizes
from graphpass.ir.graph import Value
from graphpass.ir.inputs import TOKEN_INPUTS
from graphpass.ir.model import Model

#: The padding mask ``[batch, past + length]`` and the positions ``[batch, length]``.
MASK, POSITIONS = "attention_mask", "position_ids"

Length: TypeAlias = Literal["batch", "past", "length", "total"]
"""A length of one step: sequences, positions before it, new tokens, positions after it."""

_INPUTS: dict[str, tuple[Length, Length]] = {
    MASK: ("batch", "total"),
    **dict.fromkeys((*TOKEN_INPUTS, POSITIONS), ("batch", "length")),
}


@dataclass(frozen=True, slots=True)
class Step:
    """Lengths of one step: ``length`` new tokens of ``batch`` sequences after ``past`` positions."""

    batch: int
    past: int
    length: int

    @property
    def total(self) -> int:
        """Return the number of positions after the step."""
        return self.past + self.length


def find_step_lengths(model: Model) -> dict[Dimension, Length]:
    """Return the lengths that free dimensions of inputs are, by `infer_sizes`, for `Model.analysis`."""
    graph, sizes = model.graph, model.analysis(infer_sizes)
    shapes: list[tuple[Value, dict[int | None, Length]]] = [
        (graph.parameters[name], dict(enumerate(lengths)))
        for name, lengths in _INPUTS.items()
        if name in graph.parameters
    ]
    for cache in analyze_caches(model).of_kind("kv"):
        axes: dict[int | None, Length] = {cache.axes.batch: "batch", cache.axes.sequence: "past"}
        shapes.append((graph.reads[cache.read].outputs[0], axes))
    found: dict[Dimension, Length] = {}
    for value, lengths in shapes:
        for axis, size in enumerate(sizes.shape(value) or ()):
            if axis in lengths and size.as_dimension is not None:
                found.setdefault(size.as_dimension, lengths[axis])
    return found


def evaluation_at(model: Model, step: Step, given: Mapping[Value, Array]) -> Evaluation:
    """Return the tensors of one step, computed from ``given`` ones and from lengths."""
    lengths = model.analysis(find_step_lengths)

    def number(dimension: Dimension) -> int | None:
        length = lengths.get(dimension)
        return None if length is None else int(getattr(step, length))

    return Evaluation(model.analysis(find_computable), model.analysis(infer_sizes), number, given)
