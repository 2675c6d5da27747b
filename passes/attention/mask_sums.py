"""Write the sum of all masks of an attention, and the product of its scales."""

from __future__ import annotations

import numpy

from graphpass.analysis.attention.types import Mask, Scale
from graphpass.ir.graph import Graph, Value
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import MASKED
from graphpass.ir.writer import NO_STOP, Handle, Operand, Writer


def write_product(graph: Graph, write: Writer, factors: tuple[Scale, ...], kind: str) -> Handle:
    """Write the product of factors.

    Args:
        graph: The graph of the factors, whose constants are folded.
        write: Writer of the new nodes.
        factors: Factors and divisors of the scores.
        kind: Element type of the product.

    Returns:
        The product, a scalar of type ``kind``.
    """
    known, computed = _known_product(graph, factors)
    return _times(write, write.number(known, kind, "scale"), computed, kind)


def _known_product(graph: Graph, factors: tuple[Scale, ...]) -> tuple[float, list[Scale]]:
    """Return the product of the constant factors, and the computed factors."""
    known, computed = 1.0, []
    for factor in factors:
        value = factor.factor(graph)
        if value is None:
            computed.append(factor)
        else:
            known *= value
    return known, computed


def _times(write: Writer, start: Handle, factors: list[Scale], kind: str) -> Handle:
    for factor in factors:
        flat = write.op("Reshape", factor.value, [], zero_keeps=False, label="scale_scalar")
        flat = write.convert(flat, kind, "scale_converted")
        start = write.op("Divide" if factor.divides else "Multiply", start, flat, label="scale_product")
    return start


class MaskSums:
    """Writes the sum of masks once for all layers that share them."""

    def __init__(self, rewriter: Rewriter) -> None:
        """Write with ``rewriter``."""
        self._rewriter, self._graph = rewriter, rewriter.graph
        self._made: dict[tuple[object, ...], Handle] = {}

    def of(self, masks: tuple[Mask, ...], kind: str, heads: int, prefix: str) -> Handle:
        """Return the sum of the masks of an attention; a scalar 0 without masks.

        Args:
            masks: The masks; each term and the sum are clamped to at least `MASKED`.
            kind: Element type of the sum.
            heads: Number of query heads, for masks that merge batch and heads.
            prefix: Beginning of the names of new nodes; unused if the sum is already written.
        """
        key = (masks, kind, heads)
        if key not in self._made:
            self._made[key] = self._sum(self._rewriter.under(prefix), masks, kind, heads)
        return self._made[key]

    def _sum(self, write: Writer, masks: tuple[Mask, ...], kind: str, heads: int) -> Handle:
        terms = [self._term(write, mask, kind, heads) for mask in masks]
        total = terms[0] if terms else write.number(0.0, kind)
        for term in terms[1:]:
            # The sum of two masks that exclude the same position overflows in f16.
            total = _clamped(write, write.op("Add", total, term, label="sum"), kind)
        ranks = {4 if mask.merges_heads else mask.value.rank for mask in masks}
        return write.op("Unsqueeze", total, axes=[0], label="matrix") if 1 in ranks and ranks <= {0, 1} else total

    def _term(self, write: Writer, mask: Mask, kind: str, heads: int) -> Handle:
        if mask.keeps is not None:
            numbers = [write.number(0.0, kind, "kept"), write.number(MASKED, kind, "masked")]
            term = write.op("Select", mask.value, *(numbers if mask.keeps else numbers[::-1]))
        elif mask.scales or mask.is_subtracted:
            own = mask.value.element_type
            known, computed = _known_product(self._graph, mask.scales)
            factor = write.number(-known if mask.is_subtracted else known, own, "factor")
            scaled = write.op("Multiply", mask.value, _times(write, factor, computed, own), label="scaled")
            term = _clamped(write, scaled, kind)
        else:
            term = self._finite(write, mask.value, kind)
        if mask.merges_heads:
            kept = write.op("Gather", write.op("ShapeOf", term), [1, 2], axis=0, label="kept")
            shape = write.op("Concat", [-1, heads], kept, axis=0, label="split_shape")
            term = write.op("Reshape", term, shape, zero_keeps=False, label="split")
        return term

    def _finite(self, write: Writer, mask: Value, kind: str) -> Handle:
        """Return ``mask`` clamped at `MASKED`; for a Select of constants, these are clamped."""
        node = self._graph.producer(mask)
        if node.op == "Select":
            branches = [self._graph.constant(node.inputs[port], limit=NO_STOP) for port in (1, 2)]
            clamped = [
                write.constant(numpy.float32(branch).clip(MASKED, None), "clamped", kind)
                for branch in branches
                if branch is not None
            ]
            if len(clamped) == 2:
                return write.op("Select", node.source(), *clamped)
        return _clamped(write, mask, kind)


def _clamped(write: Writer, mask: Operand, kind: str) -> Handle:
    return write.op("Maximum", write.convert(mask, kind), write.number(MASKED, kind, "lowest"), label="finite")
