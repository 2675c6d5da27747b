"""Lets attention read caches of fixed capacity; see the pass `static-cache`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.match import read_scores
from graphpass.analysis.attention.operands import attention_operands
from graphpass.analysis.attention.types import Attention
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx.rewrite import node_name
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Axes
from graphpass.ir.constants import fold_scalar
from graphpass.ir.pattern import Miss
from graphpass.passes.caches.onnx_capacity import refusal

if TYPE_CHECKING:
    import onnx

    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.ir.cache import Cache
    from graphpass.ir.graph import Graph
    from graphpass.passes.caches.onnx_capacity import CapacityRewrite
    from graphpass.passes.caches.onnx_capacity_shapes import CapacityShapes

__all__ = ["CapacityAttention"]

#: The layout that ONNX's Attention reads.
_USUAL = Axes(batch=0, heads=1, sequence=2, head_dim=3)

#: Operators that lay a cache out for the product, position by position.
_LAYOUT = frozenset({"Cast", "Div", "Expand", "Identity", "Mul", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})

#: Layout operators behind which the sequence stays the same axis; Transpose moves it.
_KEEPS_AXES = frozenset({"Cast", "Div", "Identity", "Mul"})


class CapacityAttention:
    """Attention that reads the buffers of caches, whole or up to the positions in use."""

    def __init__(self, rewrite: CapacityRewrite, shapes: CapacityShapes) -> None:
        """Find all attention, before anything is rewritten.

        Raises:
            UnsupportedError: GP391, decomposed attention of unknown form.
        """
        self._rewrite, self._shapes = rewrite, shapes
        self._products = _score_products(rewrite.model)
        self._axes = _sequence_axes(rewrite.model)
        self._fused: set[str] = set()

    def fuse(self, caches: list[Cache]) -> None:
        """Let ONNX's Attention compute what it can: it reads a buffer as it lies, without copies for heads."""
        writer = self._rewrite.writer
        presents = {cache.name: str(cache.write) for cache in caches if cache.axes == _USUAL}
        blocks = {block.node: block for block in analyze_caches(self._rewrite.model).attention}
        for attention in self._rewrite.model.analysis(find_attention):
            block = blocks.get(attention.node.name)
            scale = _scale(self._rewrite.model.graph, attention)
            if (
                block is None
                or scale is None
                or not _is_plain(attention)
                or not {block.key, block.value} <= presents.keys()
            ):
                continue
            query, output = attention.query, attention.output.name
            assert query is not None
            mask = self._rewrite.padded(attention.masks[0].value.name) if attention.masks else ""
            operands = (query.name, presents[str(block.key)], presents[str(block.value)], mask, "", "")
            old = self._rewrite.names.makers[output]
            old.output[0] = f"{output}/decomposed"
            used = self._rewrite.for_each_row(self._rewrite.total, query.name)
            writer.op("Attention", *operands, used, output=output, scale=scale, label="attention")
            scores = read_scores(self._rewrite.model.graph, attention.node)
            assert not isinstance(scores, Miss)
            self._fused |= {scores.product.outputs[0].name, old.output[0]}

    def attend(self, cache: Cache) -> None:
        """Let attention read all slots, and all else see only the positions that there are.

        Raises:
            UnsupportedError: GP391, something else than attention reads the cache.
        """
        path: dict[str, int | None] = {str(cache.write): cache.axes.sequence}
        steps: list[onnx.NodeProto] = []
        pending = list(path)
        while pending:
            name = pending.pop()
            if name in self._rewrite.names.captured:
                raise refusal(cache, "is read in the body of a loop or branch")
            for node, port in self._rewrite.readers(name):
                if node.op_type == "Shape":
                    continue
                if node.op_type == "MatMul" and node.output[0] in self._fused:
                    continue
                if node.op_type == "MatMul" and port == 1:
                    self._meet(node, node.output[0] in self._products)
                elif node.op_type in _LAYOUT and (port == 0 or node.op_type in _KEEPS_AXES):
                    path[node.output[0]] = self._axes.get(node.output[0], _moved(node, path[name]))
                    steps.append(node)
                    pending.append(node.output[0])
                else:
                    raise refusal(cache, f"is read by {node.op_type} {node_name(node)}, which is no attention")
        self._shapes.keep_layout(path, steps)
        for name, axis in path.items():
            self._shapes.keep_shape(name, axis, self._rewrite.total, cache)

    def _meet(self, product: onnx.NodeProto, makes_scores: bool) -> None:
        """Cut the scores to the positions that there are, or pad the probabilities to all slots."""
        writer = self._rewrite.writer
        if makes_scores:
            scores = product.output[0]
            whole = product.output[0] = f"{scores}/all_slots"
            bounds = (writer.integers([0]), self._rewrite.total, writer.integers([-1]), writer.integers([1]))
            writer.op("Slice", whole, *bounds, output=scores, label="scores")
            return
        product.input[0] = self._rewrite.padded(product.input[0])


def _moved(node: onnx.NodeProto, axis: int | None) -> int | None:
    """Where ``axis`` stands behind ``node``; ``None`` where that is not told."""
    if axis is None or node.op_type in _KEEPS_AXES:
        return axis
    if node.op_type == "Transpose":
        order = next(attribute.ints for attribute in node.attribute if attribute.name == "perm")
        return list(order).index(axis)
    return None


def _scale(graph: Graph, attention: Attention) -> float | None:
    """What the products of ``attention`` are multiplied with behind its query and key; ``None`` where no constant."""
    product = 1.0
    for scale in attention.scales:
        factor = fold_scalar(graph, scale.value)
        if factor is None:
            return None
        product *= 1 / factor if scale.divides else factor
    return product


def _is_plain(attention: Attention) -> bool:
    """Whether ONNX's Attention computes the same: one mask that is added or keeps scores, no sink."""
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


def _sequence_axes(model: OnnxModel) -> dict[str, int]:
    """Where the positions stand in what attention reads as key or value, by name."""
    nodes = model.graph.nodes
    return {
        nodes[index].outputs[port].name: operands[0].labels.index("sequence")
        for (index, port), operands in model.analysis(attention_operands).items()
        if "sequence" in operands[0].labels
    }


def _score_products(model: OnnxModel) -> set[str]:
    """What the products of query and key of all decomposed attention are called."""
    graph = model.graph
    found = set()
    for attention in model.analysis(find_attention):
        if attention.is_fused:
            continue
        scores = read_scores(graph, attention.node)
        if isinstance(scores, Miss):
            raise UnsupportedError(
                "GP391", f"attention {attention.node.name} cannot read a cache of fixed capacity: {scores}"
            )
        found.add(scores.product.outputs[0].name)
    return found
