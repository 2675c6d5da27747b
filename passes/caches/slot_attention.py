"""Adapt attention to caches of fixed capacity; see the pass `static-cache`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from graphpass.analysis.attention.find import find_attention, read_scores
from graphpass.analysis.attention.operands import attention_operands
from graphpass.analysis.attention.types import Attention
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import BHSD
from graphpass.ir.miss import Miss
from graphpass.passes.caches.positions_in_use import refusal

if TYPE_CHECKING:
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.ir.cache import Cache
    from graphpass.ir.graph import Graph, Node, Value
    from graphpass.ir.rewriter import Rewriter
    from graphpass.passes.caches.positions_in_use import PositionsInUse

#: Layout operators that do not change the axis of the sequence.
_KEEPS_AXES = frozenset({"Convert", "Divide", "Identity", "Multiply"})

#: Layout operators between a cache and a product.
_LAYOUT = _KEEPS_AXES | {"Broadcast", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}


class SlotAttention:
    """Attention over buffers of caches, either all slots or those in use."""

    def __init__(self, model: OnnxModel, rewriter: Rewriter, positions: PositionsInUse) -> None:
        """Find all attention.

        Raises:
            UnsupportedError: GP391, decomposed attention is of unknown form.
        """
        self._model, self._graph, self._rewriter, self._positions = model, model.graph, rewriter, positions
        self._write = rewriter.under("static_cache")
        self._products = {
            attention.node: _product(model.graph, attention.node)
            for attention in model.analysis(find_attention)
            if not attention.is_fused
        }
        #: The axis of positions in operands of attention.
        self._axes = {
            value: labels.index("sequence")
            for operand in reversed(model.analysis(attention_operands))
            for value, labels in operand.places
            if "sequence" in labels
        }
        self._fused: set[Value] = set()

    def fuse(self, presents: dict[Cache, Value]) -> None:
        """Fuse to ONNX's Attention if possible, which reads buffers without expanded heads."""
        usual = {cache.name: value for cache, value in presents.items() if cache.axes == BHSD}
        blocks = {block.node: block for block in analyze_caches(self._model).attention}
        for attention in self._model.analysis(find_attention):
            block, scale = blocks.get(attention.node.name), _scale(self._graph, attention)
            if block is None or not {block.key, block.value} <= usual.keys():
                continue
            positions, query = self._positions, attention.query
            if query is None or scale is None or not _is_plain(attention):
                continue
            key, value = (positions.latest(usual[str(name)]) for name in (block.key, block.value))
            mask = positions.padded(attention.masks[0].value) if attention.masks else None
            operands = (query, key, value, mask, None, None)
            used = positions.for_each_row(positions.total, query)
            made = self._write.op("Attention", *operands, used, scale=scale, label="attention")
            self._rewriter.replace(attention.output, made)
            self._fused |= {self._products[attention.node].outputs[0], attention.output}

    def attend(self, cache: Cache, presents: tuple[Value, ...]) -> None:
        """Connect attention to all slots of a cache, other users to positions in use.

        Args:
            cache: The cache.
            presents: The present, and the values between it and the Concat that appends.

        Raises:
            UnsupportedError: GP391, an operator other than attention reads the cache.
        """  # noqa: DOC501 - refusal is an UnsupportedError
        slots: dict[Value, int | None] = dict.fromkeys(presents, cache.axes.sequence)
        steps: list[Node] = []
        products = {product.outputs[0] for product in self._products.values()}
        pending = list(slots)
        while pending:
            value = pending.pop()
            for use in self._graph.uses(value):
                node = use.node
                if node.op == "ShapeOf" or (node.op == "Result" and value in presents):
                    continue
                made = node.outputs[0] if node.outputs else value
                if made in self._fused or (made in slots and made in presents):
                    continue
                if node.op == "MatMul" and use.port == 1:
                    self._meet(node, makes_scores=made in products)
                elif node.op in _LAYOUT and (use.port == 0 or node.op in _KEEPS_AXES):
                    slots[made] = self._axes.get(made, _axis_after(node, slots[value]))
                    steps.append(node)
                    pending.append(made)
                else:
                    raise refusal(cache, f"is read by {node.called}, which is not attention")
        self._positions.keep_layout(slots, steps)
        for value, axis in slots.items():
            self._positions.keep_shape(value, axis, self._positions.total, cache)

    def _meet(self, product: Node, *, makes_scores: bool) -> None:
        """Slice the scores to the positions in use, or pad the probabilities to the capacity."""
        if makes_scores:
            scores = product.outputs[0]
            cut = self._write.op("Slice", scores, [0], self._positions.total, axes=[-1], label="scores")
            self._rewriter.redirect_uses(scores, cut)
        else:
            self._rewriter.redirect(product, 0, self._positions.padded(product.source()))


def _axis_after(node: Node, axis: int | None) -> int | None:
    if node.op == "Transpose" and axis is not None:
        return tuple(node.attributes["order"]).index(axis)
    return axis if node.op in _KEEPS_AXES else None


def _scale(graph: Graph, attention: Attention) -> float | None:
    factors = [scale.factor(graph) for scale in attention.scales]
    return None if None in factors else math.prod((factor for factor in factors if factor is not None), start=1.0)


def _is_plain(attention: Attention) -> bool:
    """Return whether ONNX's Attention can express ``attention``: at most one mask, no sink."""
    query, masks = attention.query, attention.masks
    return (
        attention.miss is None
        and not attention.is_fused
        and attention.sink is None
        and query is not None
        and query.rank == attention.output.rank == 4
        and len(masks) <= 1
        and all(
            mask.value.rank == 4 and mask.keeps is not False and not mask.is_subtracted and not mask.scales
            for mask in masks
        )
    )


def _product(graph: Graph, softmax: Node) -> Node:
    scores = read_scores(graph, softmax)
    if isinstance(scores, Miss):
        raise UnsupportedError("GP391", f"attention {softmax.name} cannot read a cache of fixed capacity: {scores}")
    return scores.product
