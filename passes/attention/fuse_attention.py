"""The pass `fuse-attention`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.types import Attention
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.bodies import inlined
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import REALS, fixed_size, is_wider
from graphpass.ir.writer import Handle, Writer
from graphpass.passes.attention.mask_sums import MaskSums, write_product


@dataclass(frozen=True)
class FuseAttention(Pass[OpenVINOModel]):
    """Replace decomposed attention by ``ScaledDotProductAttention``, in the form that plugins fuse with the cache.

    Matches ``softmax(scale * query @ key^T + mask) @ value`` in these forms:

    - a scale on the query, the key, both or the scores, constant or computed
    - any number of masks by Add, Subtract or Select, before or after the scale
    - a key transposed by a Transpose or by the MatMul
    - grouped heads expanded by Unsqueeze, Broadcast and Reshape
    - conversions around the Softmax, and the guard ``Select(IsNaN(p), 0, p)`` after it
    - the maximum of each row subtracted before the Softmax
    - an attention sink: an additional column of scores, one logit per head, that is dropped after the Softmax

    Attention that ScaledDotProductAttention cannot express (soft caps, probabilities with other users) is unchanged
    and reported. Operands that are widened for the products, as in f16 exports, are read before the conversion.

    Queries of padding may be masked for all keys. With the guard their result was 0; after this pass it is a mean of
    values. It does not affect tokens, which do not attend to padding.

    Shapes:
        query ``[batch, heads, length, head_dim]``, key ``[batch, heads, sequence, head_dim]``, value ``[batch, heads,
        sequence, value_dim]``, mask broadcastable to ``[batch, heads, length, sequence]``, scale a scalar.

    Before:
        MatMul(query * s, Transpose(key) * s) -> Add(mask) -> Softmax -> [Select(IsNaN)] -> MatMul(., value)
    After:
        ScaledDotProductAttention(query, key, value, max(mask, -65504), s * s)

    Before:
        Concat(MatMul(query, key) * s, Broadcast(sink)) -> [Subtract(ReduceMax)] -> Softmax -> Slice -> MatMul(., value)
    After:
        ScaledDotProductAttention(query, key, value, mask, s, sink)

    StatefulSDPAFusion of OpenVINO's CPU plugin matches the result (stateful_sdpa_fusion.cpp): key and value come
    directly from the cache's Concat or its grouped-head expansion, without Transpose or scale.
    """

    name = "fuse-attention"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        blocks = [block for block in model.analysis(find_attention) if not block.is_fused]
        pairs = [(block, block.miss or _obstacle(block)) for block in blocks]
        notes = [f"attention at {block.node.name} stays unchanged: {miss}" for block, miss in pairs if miss]
        notes += [
            f"attention at {name} stays unchanged: it is in the body of a loop or branch" for name in _inside(model)
        ]
        fused = [block for block, miss in pairs if not miss]
        rewriter = model.rewriter()
        masks = MaskSums(rewriter)
        for block in fused:
            rewriter.replace(block.output, _fused(rewriter, block, masks))
        for block in fused:
            _read_shapes_at_source(rewriter, block.key, block.key_forms)
            _read_shapes_at_source(rewriter, block.value, block.value_forms)
        rewriter.finish()
        return Done({"attention fused": len(fused), "attention left": len(notes)}, tuple(notes))


def _inside(model: OpenVINOModel) -> list[str]:
    """Return names of decomposed attention in bodies, whose operands may come from outside."""
    whole = inlined(model)
    if whole is model:
        return []
    names = Counter(block.node.name for block in whole.analysis(find_attention) if not block.is_fused)
    return list((names - Counter(node.name for node in model.graph.of_op("Softmax"))).elements())


def _obstacle(block: Attention) -> Miss | None:
    assert block.query is not None
    types = {operand.element_type for operand in (block.key, block.value) if operand is not None}
    if len(types) > 1 or not (block.query.element_type in types or is_wider(block.query.element_type, max(types))):
        types.add(block.query.element_type)
        return Miss(block.node, f"its operands are of different types: {', '.join(sorted(types))}")
    if not types <= REALS:
        return Miss(block.node, f"its operands are of type {types.pop()}")
    if block.sink is not None and _heads(block) is None:
        return Miss(block.node, f"the number of heads of its attention sink {block.sink.name} is unknown")
    return None


def _heads(block: Attention) -> int | None:
    """Return the number of heads if known; operands with one head broadcast."""
    sizes = [fixed_size(operand, -3) or 0 for operand in (block.query, block.sink, block.key, block.value)]
    return next((size for size in sizes if size > 1), 1 if fixed_size(block.query, 1) == 1 else None)


def _fused(rewriter: Rewriter, block: Attention, masks: MaskSums) -> Handle:
    query, key, value = block.query, block.key, block.value
    assert query is not None
    assert key is not None
    assert value is not None
    write, kind = rewriter.under(block.node.name), value.element_type
    # Exports in f16 may compute rotary embeddings in f32; their caches are f16, the type that plugins fuse.
    operands = [
        write.convert(query, kind, "query"),
        _transposed(rewriter.graph, write, key) if block.key_is_transposed else key,
        value,
        # If masks merge heads and batch, an operand has the number of heads; 1 is not used otherwise.
        masks.of(block.masks, kind, _heads(block) or 1, f"{block.node.name}/mask"),
        write_product(rewriter.graph, write, block.scales, kind),
    ]
    if block.sink is not None:
        heads = _heads(block)
        assert heads is not None
        # Paged attention silently drops a sink unless the query's static number of heads equals the sink's.
        if fixed_size(query, 1) != heads:
            operands[0] = write.op("Reshape", operands[0], [0, heads, -1, 0], label="query_by_head")
        sink = write.convert(block.sink, kind, "sink_converted")
        if block.sink_is_negative:
            sink = write.op("Negative", sink, label="sink_positive")
        if fixed_size(block.sink, -2) == heads:
            # A sink computed by a gate has the axes [batch, heads, queries].
            sink = write.op("Reshape", sink, [1, heads, 1, 1], label="sink")
        elif block.sink.shape != (1, heads, 1, 1):
            # Broadcast aligns trailing axes, and so adds missing leading axes.
            sink = write.op("Broadcast", sink, [1, heads, 1, 1], label="sink")
        operands.append(sink)
    fused = write.op("ScaledDotProductAttention", *operands, label="fused")
    if block.output.rank == 3:
        shape = write.op("Concat", [-1], write.size(operands[0], 2), [fixed_size(value, -1)], axis=0, label="shape")
        fused = write.op("Reshape", fused, shape, zero_keeps=False, label="merged")
    return write.convert(fused, block.output.element_type, "widened")


def _transposed(graph: Graph, write: Writer, key: Value) -> Handle:
    """Return ``key`` with its last two axes swapped, in its own Transpose if possible."""
    node = graph.producer(key)
    order, source = node.attributes.get("order", ()), key
    if node.op == "Transpose" and len(order) == 4:
        source = node.source()
    else:
        order = (0, 1, 2, 3)
    return write.op("Transpose", source, order=[order[axis] for axis in (0, 1, 3, 2)], label="key")


def _read_shapes_at_source(rewriter: Rewriter, source: Value | None, forms: tuple[Value, ...]) -> None:
    """Redirect readers of the shapes of ``forms``, derived from ``source``, to the shape of ``source``.

    Exports slice masks to the length of the key that the replaced product read. That ShapeOf is a second user of the
    cache, and the CPU plugin fuses a cache with one user only.
    """
    assert source is not None
    graph = rewriter.graph
    # Axes of the source that each axis of a form combines: a Reshape merges batch and heads, or splits them.
    axes: tuple[tuple[int, ...], ...] = ((0,), (1,), (2,), (3,))
    for form in forms:
        node = graph.producer(form)
        if node.op == "Transpose":
            axes = tuple(axes[axis] for axis in node.attributes["order"])
        elif node.op == "Reshape":
            first = [(*axes[0], *axes[1])] if len(axes) == 4 else [axes[0][:1], axes[0][1:]]
            axes = (*first, *axes[-2:])
        for use in graph.uses(form):
            if use.node.op == "ShapeOf":
                _read_at_source(rewriter, use.node, source, axes)


def _read_at_source(rewriter: Rewriter, shape: Node, source: Value, axes: tuple[tuple[int, ...], ...]) -> None:
    """Redirect Gathers from a ShapeOf to the shape of ``source``.

    Other users are unchanged: with arithmetic in between, the plugin's fusion creates a cycle in the graph.
    """
    graph = rewriter.graph
    for use in graph.uses(shape.outputs[0]):
        picked = graph.constant(use.node.inputs[1]) if use.node.op == "Gather" and use.port == 0 else None
        if picked is None or any(len(axes[int(axis)]) > 1 for axis in picked.reshape(-1)):
            continue
        write, old = rewriter.under(use.node.name), use.node.outputs[0]
        indices = numpy.array([axes[int(axis)][0] for axis in picked.reshape(-1)]).reshape(picked.shape)
        whole = write.op("ShapeOf", source, output_type=old.element_type, label="shape")
        rewriter.replace(old, write.op("Gather", whole, write.constant(indices, "places"), axis=0))
