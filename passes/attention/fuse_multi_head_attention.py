"""The pass `fuse-multi-head-attention`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.types import Attention
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Value
from graphpass.ir.inputs import token_input
from graphpass.ir.miss import Miss
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size
from graphpass.ir.writer import Handle, Writer
from graphpass.passes.attention.mask_sums import MaskSums
from graphpass.passes.attention.merged_heads import merged_heads

_DOMAIN = "com.microsoft"

#: Order of the axes of a key that is transposed for the product.
_KEYS = (0, 1, 3, 2)

#: Axes of ``[batch, positions, heads, size]`` in an operand, and in a transposed key.
_ROWS, _TRANSPOSED = (0, 2, 1, 3), (0, 3, 1, 2)


@dataclass(frozen=True)
class FuseMultiHeadAttention(Pass[OnnxModel]):
    """Replace decomposed attention without growing caches by ONNX Runtime's MultiHeadAttention.

    Encoders, embedders and rerankers attend to all tokens of a text, cross attention to all positions of an encoder.
    Caches of cross attention are read as they are stored. The operator does not support grouped heads: they are still
    expanded before it. Attention with a soft cap or a sink is unchanged.

    Shapes:
        query ``[batch, heads, length, head_dim]``; key and value ``[batch, heads, total, head_dim]``; masks are added,
        ``[batch or 1, 1, length, total]``

    Before:
        MatMul(Softmax(Add(MatMul(query * s, key * s), mask)), value) -> Transpose -> Reshape
    After:
        MultiHeadAttention(query, key, value, attention_bias=mask){num_heads, scale}
    """

    name = "fuse-multi-head-attention"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done:
        grown = _with_growing_caches(model)
        blocks = [
            block for block in model.analysis(find_attention) if not block.is_fused and block.node.name not in grown
        ]
        misses = {block.node.name: miss for block in blocks if (miss := _obstacle(model, block)) is not None}
        fused = [block for block in blocks if block.node.name not in misses]
        rewriter = model.rewriter()
        fusion = _Fusion(model, rewriter)
        for block in fused:
            fusion.fuse(block)
        rewriter.finish()
        notes = tuple(f"attention at {name} stays unchanged: {miss}" for name, miss in misses.items())
        return Done({"attention fused": len(fused), "attention left": len(misses)} if blocks else {}, notes)


def _with_growing_caches(model: OnnxModel) -> frozenset[str]:
    """Return the names of attention that reads caches with an entry for each token."""
    inventory = analyze_caches(model)
    grown = {cache.name for cache in inventory.caches if cache.kind != "cross"}
    return frozenset(block.node for block in inventory.attention if not grown.isdisjoint({block.key, block.value}))


def _obstacle(model: OnnxModel, block: Attention) -> Miss | None:
    if block.miss is not None:
        return block.miss
    if block.sink is not None or block.cap_scales is not None:
        return Miss(block.node, "MultiHeadAttention supports neither sinks nor soft caps")
    if _heads(model, block) is None or any(
        part is None or part.rank != 4 for part in (block.query, block.key, block.value)
    ):
        return Miss(block.node, "its number of heads is unknown")
    if any(scale.factor(model.graph) is None for scale in block.scales):
        return Miss(block.node, "its scale is not a constant")
    return None


def _heads(model: OnnxModel, block: Attention) -> int | None:
    shape = model.analysis(infer_sizes).shape(block.query)
    heads = shape[1].as_number if shape else None
    return heads if isinstance(heads, int) else None


def _last(value: Value) -> int | None:
    """Return the product of the last two dimensions of ``value``."""
    heads, size = fixed_size(value, -2), fixed_size(value, -1)
    return None if heads is None or size is None else heads * size


class _Fusion:
    """Writes one operator per attention, and each shared mask once."""

    def __init__(self, model: OnnxModel, rewriter: Rewriter) -> None:
        self._model, self._rewriter = model, rewriter
        self._masks = MaskSums(rewriter)
        self._biases: dict[object, Handle] = {}
        self._lengths: dict[Expr, Handle] = {}

    def fuse(self, block: Attention) -> None:
        write, heads = self._rewriter.under(block.node.name), _heads(self._model, block) or 0
        assert block.query is not None
        assert block.key is not None
        assert block.value is not None
        kind = block.value.element_type
        axes = _TRANSPOSED if block.key_is_transposed else _ROWS
        operands = [self._flat(write, block.query, _ROWS, kind)]
        stored = self._stored(block)
        operands += stored or [self._flat(write, block.key, axes, kind), self._flat(write, block.value, _ROWS, kind)]
        if block.masks:
            operands += [None, None, self._bias(block, kind, heads)]
        attributes = {
            "num_heads": heads,
            "scale": math.prod((scale.factor(self._model.graph) or 1.0 for scale in block.scales), start=1.0),
        }
        (result,) = write.outputs(
            "MultiHeadAttention", *operands, count=1, label="MultiHeadAttention", domain=_DOMAIN, **attributes
        )
        size = fixed_size(block.output, 3)
        merged = None if size is None else merged_heads(self._model, block.output, heads * size)
        if merged is not None and block.output.element_type == kind:
            self._rewriter.replace(merged, result)
            return
        split = write.op("Reshape", result, [0, 0, heads, -1], label="split")
        by_head = write.op("Transpose", split, order=[0, 2, 1, 3], label="by_head")
        is_same = block.output.element_type == kind
        self._rewriter.replace(block.output, by_head if is_same else write.convert(by_head, block.output.element_type))

    def _length(self, write: Writer, value: Value, axis: int) -> Handle:
        """Return the size of an axis, written once for equal sizes, preferably from the tokens."""
        sizes, tokens = self._model.analysis(infer_sizes), token_input(self._rewriter.graph)
        shape, counted = sizes.shape(value), sizes.shape(tokens)
        if not shape:
            return write.size(value, axis)
        if shape[axis] not in self._lengths:
            of_tokens = tokens is not None and counted and counted[1] is shape[axis]
            self._lengths[shape[axis]] = write.size(*((tokens, 1) if of_tokens else (value, axis)))
        return self._lengths[shape[axis]]

    def _stored(self, block: Attention) -> list[Handle]:
        """Return key and value if they are inputs of the model; else an empty list.

        Returns:
            ``[batch, heads, total, head_dim]`` each.
        """
        graph, key = self._rewriter.graph, block.key
        assert key is not None
        assert block.value is not None
        if block.key_is_transposed:
            node = graph.producer(key)
            if node.op != "Transpose" or node.attributes.get("order") != _KEYS:
                return []
            key = node.source()
        are_inputs = all(graph.producer(part).op == "Parameter" for part in (key, block.value))
        return [self._rewriter.handle(part) for part in (key, block.value)] if are_inputs else []

    def _flat(self, write: Writer, value: Value, axes: tuple[int, ...], kind: str) -> Handle:
        """Return ``[batch, positions, heads * size]``."""
        graph = self._rewriter.graph
        node = graph.producer(value)
        source, order = value, tuple(axes)
        if node.op == "Transpose" and len(node.attributes.get("order", ())) == 4:
            source, order = node.source(), tuple(node.attributes["order"][axis] for axis in axes)
        rows = (
            self._rewriter.handle(source) if order == (0, 1, 2, 3) else write.op("Transpose", source, order=list(order))
        )
        split = graph.producer(source) if order == (0, 1, 2, 3) else node
        joined = split.input(0) if split.op == "Reshape" else None
        if (
            joined is not None
            and joined.rank == 3
            and fixed_size(joined, 2) == _last(source)
            and value.element_type == kind
        ):
            return self._rewriter.handle(joined)
        flat = write.op("Reshape", rows, [0, 0, -1], label="flat")
        return flat if value.element_type == kind else write.convert(flat, kind)

    def _bias(self, block: Attention, kind: str, heads: int) -> Handle:
        if (known := self._biases.get((block.masks, kind))) is not None:
            return known
        write = self._rewriter.under("attention_bias")
        mask = self._masks.of(block.masks, kind, heads, f"{block.node.name}/mask")
        assert block.query is not None
        assert block.key is not None
        length = self._length(write, block.query, 2)
        total = self._length(write, block.key, 3 if block.key_is_transposed else 2)
        shape = write.op("Concat", [1, 1], length, total, axis=0, label="shape")
        made = self._biases[block.masks, kind] = write.op("Broadcast", mask, shape, label="bias")
        return made
