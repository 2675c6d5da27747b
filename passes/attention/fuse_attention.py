"""The pass `fuse-attention`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.types import Attention, Mask, Scale
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import integers, named, output_of, scalar
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.bodies import inlined
from graphpass.ir.constants import fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.pattern import Miss
from graphpass.ir.types import Dialect
from graphpass.ir.values import MASKED, REALS, is_wider

if TYPE_CHECKING:
    import openvino

__all__ = ["FuseAttention"]


@dataclass(frozen=True)
class FuseAttention(Pass[OpenVINOModel]):
    """Replace decomposed attention by ``ScaledDotProductAttention``, in the form that plugins fuse with the cache.

    Recognised is ``softmax(scale * query @ key^T + mask) @ value`` with the scale on either operand, on both or on the
    scores, as a constant or computed; masks by Add, Subtract or Select, several of them, before the scale or after it;
    the key transposed by a Transpose or by the MatMul; grouped heads expanded by Unsqueeze, Broadcast and Reshape;
    conversions around the Softmax; the guard ``Select(IsNaN(p), 0, p)`` behind it; the maximum of each row subtracted
    before it; an attention sink, which is one more column of scores, one number for each head, that is dropped behind
    the Softmax. What ScaledDotProductAttention cannot express (soft caps, probabilities that are used elsewhere) stays
    as it is and is reported. Operands that were widened for the products, as exports in f16 have it, are read before
    that.

    Rows that are masked whole belong to padding. With the guard they gave 0, after this pass they give some mean of the
    values; no other row sees them, because their keys are masked there.

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

    The form is the one that StatefulSDPAFusion of OpenVINO's CPU plugin matches (stateful_sdpa_fusion.cpp): key and
    value straight from the cache's Concat or its grouped-head expansion, without Transpose or scale in between.
    """

    name: ClassVar[str] = "fuse-attention"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        blocks = [block for block in model.analysis(find_attention) if not block.is_fused]
        pairs = [(block, block.miss or _obstacle(block)) for block in blocks]
        notes = tuple(f"attention at {block.node.name} stays as it is: {miss}" for block, miss in pairs if miss)
        notes += tuple(
            f"attention at {name} stays as it is: it is in the body of a loop or branch" for name in _inside(model)
        )
        fused = [block for block, miss in pairs if not miss]
        if not fused:
            return Unchanged(notes)
        masks = _Masks(model.graph)
        # All are built before the first is put in place: one block's operand may be another block's result.
        replacements = [(output_of(model.graph, block.output), _fused(model.graph, block, masks)) for block in fused]
        for product, replacement in replacements:
            product.replace(replacement.output(0))
        for block in fused:
            _read_shapes_at_source(model.graph, block.key, block.key_forms)
            _read_shapes_at_source(model.graph, block.value, block.value_forms)
        model.ov_model.validate_nodes_and_infer_types()
        return Changed(model, {"attention fused": len(fused), "attention left": len(notes)}, notes)


def _inside(model: OpenVINOModel) -> list[str]:
    """The attention in bodies, whose operands may come from outside them."""
    outside = {op.get_name() for op in model.ov_model.get_ops()}
    blocks = inlined(model).analysis(find_attention)
    return [block.node.name for block in blocks if not block.is_fused and block.node.native.get_name() not in outside]


def _obstacle(block: Attention) -> Miss | None:
    """Return why ScaledDotProductAttention cannot take the operands."""
    assert block.query is not None
    types = {operand.element_type for operand in (block.key, block.value) if operand is not None}
    if len(types) > 1 or not (block.query.element_type in types or is_wider(block.query.element_type, max(types))):
        types.add(block.query.element_type)
        return Miss(block.node, f"its operands are of different types: {', '.join(sorted(types))}")
    if not types <= REALS:
        return Miss(block.node, f"its operands are of type {types.pop()}")
    if block.sink is not None and _heads(block) is None:
        return Miss(block.node, f"an attention sink, {block.sink.name}, for a number of heads that is not known")
    return None


def _heads(block: Attention) -> int | None:
    """The number of heads, where any operand tells it.

    One head says nothing: it may stand for all.
    """
    for operand in (block.query, block.sink, block.key, block.value):
        shape = (1, 1, 1, 1, *(operand.shape or ())) if operand is not None else (1, 1, 1)
        if isinstance(heads := shape[-3], int) and heads > 1:
            return heads
    return 1 if block.query is not None and block.query.shape is not None and block.query.shape[1] == 1 else None


def _fused(graph: Graph, block: Attention, masks: _Masks) -> openvino.Node:
    """What takes the place of the product with the value, under its name."""
    from openvino import opset13

    assert block.query is not None
    assert block.key is not None
    assert block.value is not None
    query, value = output_of(graph, block.query), output_of(graph, block.value)
    key = _key(graph, block.key, f"{block.node.name}/key") if block.key_is_transposed else output_of(graph, block.key)
    element_type = value.get_element_type()
    if query.get_element_type() != element_type:
        # Exports in f16 that compute rotary positions in f32: what is in the cache is f16, and the plugins fuse that.
        query = named(opset13.convert(query, element_type.to_string()), f"{block.node.name}/query").output(0)
    product = output_of(graph, block.output)
    name = product.get_node().get_friendly_name()
    mask, scale = masks.of(block, element_type), _scale(graph, block, element_type)
    if block.sink is None:
        fused = opset13.scaled_dot_product_attention(query, key, value, mask, scale, False)
    else:
        fused = _with_sink(graph, block, [query, key, value, mask.output(0), scale.output(0)])
    if block.output.rank == 3:
        fused = _merged(named(fused, f"{name}/split"), query, f"{name}/merged")
    if product.get_element_type() == element_type:
        return named(fused, name)
    wide = opset13.convert(named(fused, f"{name}/fused"), product.get_element_type().to_string())
    return named(wide, name)


def _with_sink(graph: Graph, block: Attention, inputs: list[openvino.Output]) -> openvino.Node:
    """The operator with a sink, for which openvino's Python API has no function.

    Paged attention forgets a sink, without a word, unless it can see that query and sink have the same heads.
    """
    from openvino import opset13
    from openvino.utils.node_factory import NodeFactory

    heads, name = _heads(block), f"{block.node.name}/sink"
    assert heads is not None
    assert block.query is not None
    if block.query.shape is not None and block.query.shape[1] != heads:
        split = integers([0, heads, -1, 0], f"{name}/query_shape")
        inputs[0] = named(opset13.reshape(inputs[0], split, special_zero=True), f"{name}/query").output(0)
    sink = _sink(graph, block, heads, inputs[0].get_element_type(), name)
    fused: openvino.Node = NodeFactory("opset13").create(
        "ScaledDotProductAttention", [*inputs, sink], {"causal": False}
    )
    return fused


def _sink(graph: Graph, block: Attention, heads: int, element_type: openvino.Type, name: str) -> openvino.Output:
    """The sink as ``[1, heads, 1, 1]``."""
    from openvino import opset13

    assert block.sink is not None
    sink = output_of(graph, block.sink)
    if sink.get_element_type() != element_type:
        sink = named(opset13.convert(sink, element_type.to_string()), f"{name}/converted").output(0)
    if block.sink.shape != (1, heads, 1, 1):
        # Shapes align at their ends, so that this adds the missing axes too.
        sink = named(opset13.broadcast(sink, integers([1, heads, 1, 1], f"{name}/shape")), name).output(0)
    return sink


def _read_shapes_at_source(graph: Graph, source: Value | None, forms: tuple[Value, ...]) -> None:
    """Lets what asks for the shapes of ``forms`` ask for that of ``source``, of which they are made.

    Masks are cut to the length of the key as the old product read it. That keeps a second reader of the cache, with
    which the CPU plugin does not fuse the cache and the operator.
    """
    assert source is not None
    # Which axes of the source, multiplied, each axis of a form is: a Reshape merges batch and heads, or splits them.
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
                _read_at_source(graph, use.node, output_of(graph, source), axes)


def _read_at_source(graph: Graph, shape: Node, source: openvino.Output, axes: tuple[tuple[int, ...], ...]) -> None:
    """Lets those who pick dimensions out of ``shape``, a ShapeOf, pick them out of the shape of ``source``.

    Only picked ones: with arithmetic in between, the plugin's fusion makes a loop of the graph.
    """
    from openvino import opset13

    for use in graph.uses(shape.outputs[0]):
        picked = graph.constant(use.node.inputs[1]) if use.node.op == "Gather" and use.port == 0 else None
        if picked is None or any(len(axes[int(place)]) > 1 for place in picked.reshape(-1)):
            continue
        name, old = use.node.name, use.node.native
        places = numpy.array([axes[int(place)][0] for place in picked.reshape(-1)]).reshape(picked.shape)
        whole = named(opset13.shape_of(source, old.get_output_element_type(0).to_string()), f"{name}/shape")
        index = named(opset13.constant(places, dtype=numpy.int64), f"{name}/places")
        old.output(0).replace(named(opset13.gather(whole, index, integers(0, f"{name}/axis")), name).output(0))


def _merged(result: openvino.Node, query: openvino.Output, name: str) -> openvino.Node:
    """``[batch * heads, length, size]`` of a result ``[batch, heads, length, size]``."""
    from openvino import opset13

    shape = named(opset13.shape_of(query, "i64"), f"{name}/query_shape")
    length = named(
        opset13.gather(shape, integers([2], f"{name}/position"), integers(0, f"{name}/axis")), f"{name}/length"
    )
    size = result.get_output_partial_shape(0)[3].get_length()
    target = named(opset13.concat([integers([-1], f"{name}/rows"), length, integers([size], f"{name}/size")], 0), name)
    return opset13.reshape(result, target, special_zero=False)


def _key(graph: Graph, key: Value, name: str) -> openvino.Output:
    """``key`` with its last two axes swapped; one Transpose where it comes out of a Transpose already."""
    from openvino import opset13

    node = graph.producer(key)
    order, source = node.attributes.get("order", ()), key
    if node.op == "Transpose" and len(order) == 4 and node.inputs[0] is not None:
        source = node.inputs[0]
    else:
        order = (0, 1, 2, 3)
    swapped = integers((order[0], order[1], order[3], order[2]), f"{name}_order")
    return named(opset13.transpose(output_of(graph, source), swapped), name).output(0)


def _scale(graph: Graph, block: Attention, element_type: openvino.Type) -> openvino.Node:
    """The product of all factors: a constant where all are known, else computed."""
    known, computed = _known_product(graph, block.scales)
    start = scalar(known, element_type, f"{block.node.name}/scale")
    return _times(graph, start, computed, element_type, f"{block.node.name}/scale")


def _known_product(graph: Graph, factors: tuple[Scale, ...]) -> tuple[float, list[Scale]]:
    """The product of those factors that are constants or made of known dimensions, and the other factors."""
    known, computed = 1.0, []
    for factor in factors:
        value = fold_scalar(graph, factor.value)
        if value is None or (factor.divides and not value):
            computed.append(factor)
        else:
            known = known / value if factor.divides else known * value
    return known, computed


def _times(
    graph: Graph, start: openvino.Node, factors: list[Scale], element_type: openvino.Type, name: str
) -> openvino.Node:
    from openvino import opset13

    for number, factor in enumerate(factors):
        source, part = output_of(graph, factor.value), f"{name}_{number}"
        flat = named(opset13.reshape(source, integers((), f"{part}/shape"), special_zero=False), f"{part}/scalar")
        if source.get_element_type() != element_type:
            flat = named(opset13.convert(flat, element_type.to_string()), f"{part}/converted")
        start = named((opset13.divide if factor.divides else opset13.multiply)(start, flat), part)
    return start


class _Masks:
    """Builds each mask once, however many layers share it."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._built: dict[tuple[object, ...], openvino.Node] = {}

    def of(self, block: Attention, element_type: openvino.Type) -> openvino.Node:
        """The sum of a block's masks; a scalar 0, which means none, where it has none."""
        # Where masks merge the heads with the batch, the heads are known, and more than one is told by an operand.
        heads = _heads(block) or 1
        key = (block.masks, element_type.to_string(), heads)
        if key not in self._built:
            name = f"{block.node.name}/mask"
            terms = [
                self._split(mask, self._term(mask, element_type, f"{name}_{number}"), heads, f"{name}_{number}")
                for number, mask in enumerate(block.masks)
            ]
            self._built[key] = self._sum(terms, element_type, name)
        return self._built[key]

    def _split(self, mask: Mask, term: openvino.Node, heads: int, name: str) -> openvino.Node:
        """``[batch, heads, ..]`` of a term that is ``[batch * heads, ..]``."""
        from openvino import opset13

        if not mask.merges_heads:
            return term
        shape = named(opset13.shape_of(term, "i64"), f"{name}/merged_shape")
        kept = named(
            opset13.gather(shape, integers([1, 2], f"{name}/kept"), integers(0, f"{name}/axis")), f"{name}/last"
        )
        target = named(opset13.concat([integers([-1, heads], f"{name}/first"), kept], 0), f"{name}/split_shape")
        return named(opset13.reshape(term, target, special_zero=False), f"{name}/split")

    def _sum(self, terms: list[openvino.Node], element_type: openvino.Type, name: str) -> openvino.Node:
        from openvino import opset13

        total = terms[0] if terms else scalar(0.0, element_type, name)
        for number, term in enumerate(terms[1:], 1):
            # Two masks that hide the same position add up to what is infinite in f16.
            total = named(opset13.add(total, term), f"{name}_sum_{number}")
            total = _clamped(total.output(0), element_type, f"{name}_sum_{number}")
        rank = total.output(0).get_partial_shape().rank
        if rank.is_static and rank.get_length() == 1:
            total = named(opset13.unsqueeze(total, integers([0], f"{name}/axis")), f"{name}/matrix")
        return total

    def _term(self, mask: Mask, element_type: openvino.Type, name: str) -> openvino.Node:
        """One mask as what is to be added to the scaled scores."""
        from openvino import opset13

        output = output_of(self._graph, mask.value)
        if mask.keeps is not None:
            kept, masked = scalar(0.0, element_type, f"{name}/kept"), scalar(MASKED, element_type, f"{name}/masked")
            return named(opset13.select(output, *((kept, masked) if mask.keeps else (masked, kept))), name)
        if not mask.scales and not mask.is_subtracted:
            return _finite(output, element_type, name)
        own = output.get_element_type()
        known, computed = _known_product(self._graph, mask.scales)
        factor = scalar(-known if mask.is_subtracted else known, own, f"{name}/factor")
        factor = _times(self._graph, factor, computed, own, f"{name}/factor")
        return _clamped(named(opset13.multiply(output, factor), f"{name}/scaled").output(0), element_type, name)


def _finite(mask: openvino.Output, element_type: openvino.Type, name: str) -> openvino.Node:
    """``mask`` with nothing below `MASKED`: rebuilt where it chooses between constants, clamped otherwise."""
    from openvino import opset13

    node = mask.get_node()
    if node.get_type_name() == "Select":
        branches = [node.input_value(port).get_node() for port in (1, 2)]
        if all(branch.get_type_name() == "Constant" for branch in branches):
            clamped = [
                # Not `.data`: for bf16, which numpy does not know, that is the bits taken for f16.
                named(
                    opset13.constant(branch.get_data(dtype=numpy.float32).clip(MASKED, None), dtype=element_type), part
                )
                for branch, part in zip(branches, (f"{name}/kept", f"{name}/masked"), strict=True)
            ]
            return named(opset13.select(node.input_value(0), *clamped), name)
    return _clamped(mask, element_type, name)


def _clamped(mask: openvino.Output, element_type: openvino.Type, name: str) -> openvino.Node:
    from openvino import opset13

    if mask.get_element_type() != element_type:
        mask = named(opset13.convert(mask, element_type.to_string()), f"{name}/converted").output(0)
    return named(opset13.maximum(mask, scalar(MASKED, element_type, f"{name}/lowest")), f"{name}/finite")
