"""Constants in f16 or bf16, identified with the f32 constants that they are rounded from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy

from graphpass.analysis.symbolic.expressions import ZERO, Expr
from graphpass.analysis.symbolic.rounding import typed
from graphpass.dialects.rounding import LARGEST, Half
from graphpass.ir.graph import Graph, Value
from graphpass.ir.model import Model
from graphpass.verify.structure.blocks import ConstantBlocks
from graphpass.verify.structure.weights import WeightDigests, constant_elements, digest_of

if TYPE_CHECKING:
    from graphpass.analysis.symbolic.elements import Index
    from graphpass.verify.structure.weights import Array


def types_of_products(model: Model) -> Counter[str]:
    """Return the number of MatMul, Gemm and MatMulNBits nodes of a model by element type."""
    return Counter(node.outputs[0].element_type for node in model.graph.of_op("MatMul", "Gemm", "MatMulNBits"))


def rounded_type(reference: Model, candidate: Model) -> Half | None:
    """Return the 16-bit type of most products in the candidate, if the reference has none.

    A few products in 16 bits are not a conversion of the model, and are reported as a difference.

    Args:
        reference: Model before a conversion to 16 bits.
        candidate: Model after it.
    """
    known, made = types_of_products(reference), types_of_products(candidate)
    halves: tuple[Half, ...] = ("f16", "bf16")
    return next((half for half in halves if not known[half] and 2 * made[half] > made.total()), None)


def rounded_and_clipped(half: Half, array: Array) -> Array:
    """Return f32 numbers rounded to ``half``, clipped to its range.

    Args:
        half: Type of 16 bits; ties round to even.
        array: The numbers, in any shape.
    """
    cut = numpy.clip(array, -LARGEST[half], LARGEST[half])
    return numpy.asarray(typed(cut, half).astype(numpy.float32))


class RoundedConstants:
    """The f32 constants of one model, identified by their values rounded to 16 bits."""

    def __init__(
        self, half: Half, graph: Graph, element: Callable[[Value, Index], Expr], weights: WeightDigests
    ) -> None:
        """Prepare the search; constants are read on first use.

        Args:
            half: The type of the other model's constants.
            graph: The graph with the f32 constants.
            element: Returns an element of an f32 constant at an index.
            weights: Digests of both models' constants.
        """
        self._half, self._graph, self._element, self._weights = half, graph, element, weights
        self._stored = partial(rounded_and_clipped, half)
        self._blocks = ConstantBlocks(graph, element, weights, self._stored)

    def element(self, graph: Graph, value: Value, index: Index) -> Expr | None:
        """Return an element of the f32 constant of a 16-bit constant; ``None`` if not found.

        Args:
            graph: Graph of the 16-bit constant.
            value: The 16-bit constant.
            index: Index of the element, one expression an axis.
        """
        if value.element_type != self._half:
            return None
        weight = self._weights.of(graph, value)
        source = None if weight is None else self._sources.get(weight.digest)
        if source is None:
            return self._blocks.element(graph, value, index)
        places = iter([place for place, size in zip(index, value.shape or (), strict=True) if size != 1])
        return self._element(source, tuple(ZERO if size == 1 else next(places) for size in source.shape or ()))

    @cached_property
    def _sources(self) -> dict[str, Value]:
        """The f32 constant by digest of its rounded values, if no other has the same."""
        sources: dict[str, Value] = {}
        ambiguous: set[str] = set()
        for value in (node.outputs[0] for node in self._graph.of_op("Constant")):
            is_rounded = value.element_type == "f32" and not self._weights.is_shared(self._graph, value)
            constant = constant_elements(self._graph, value) if is_rounded else None
            if constant is None:
                continue
            digest = digest_of(constant, "f32", self._stored)
            if digest not in sources:
                sources[digest] = value
            elif self._differs(sources[digest], constant):
                ambiguous.add(digest)
        return {digest: value for digest, value in sources.items() if digest not in ambiguous}

    def _differs(self, value: Value, constant: Array) -> bool:
        known = constant_elements(self._graph, value)
        return known is None or bool((known.reshape(constant.shape) != constant).any())
