"""The pass `static-cache`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewriter import OnnxRewriter
from graphpass.engine.conditions import HAS_CACHES, STATELESS
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.inputs import check_positions
from graphpass.ir.writer import Handle
from graphpass.passes.caches.positions_in_use import PositionsInUse, refusal
from graphpass.passes.caches.slot_attention import SlotAttention

#: Attributes of an Attention that joins heads in the last axis of its operands.
_HEADS = ("q_num_heads", "kv_num_heads")

#: The first opset with TensorScatter and Attention's nonpad_kv_seqlen.
_TENSOR_SCATTER = 24


@dataclass(frozen=True)
class StaticCache(Pass[OnnxModel]):
    """Replace growing caches by buffers of fixed capacity, written in place.

    With a shared buffer as past and present (IO binding of ONNX Runtime), a runtime neither allocates nor copies
    caches. Inputs are fed as before: new positions are written after the past, whose length is that of
    ``attention_mask`` less that of the new tokens. A model without this mask gets an input ``past_len`` (i64 [1]).

    Decomposed attention computes scores of all slots, which are sliced to the positions in use; probabilities are
    padded with zeros to all slots. Masks, windows, biases and sinks are unchanged.

    From opset 24 on, attention with at most one mask and no sink becomes ONNX's Attention, which reads the buffer up
    to ``nonpad_kv_seqlen``, without expanding or transposing keys. `upgrade-opset` converts exports to opset
    24. GroupQueryAttention, as in models of the onnxruntime-genai builder, writes in place if past and present share a
    buffer.

    Options:
        capacity: Number of positions of the buffer, new positions included.

    Shapes:
        kv ``[batch, heads, sequence, head_dim]`` in any order; the sequence becomes ``capacity``.

    Before:
        Concat(past_key_values.0.key, key) = present.0.key -> MatMul(query, .) -> .. -> Softmax -> MatMul(., value)
    After:
        ScatterElements(past_key_values.0.key, slots, key) = present.0.key -> MatMul(query, .) -> Slice(0:length) -> ..
        -> Softmax -> Pad(0, capacity) -> MatMul(., value); from opset 24 on
        TensorScatter(past_key_values.0.key, key) = present.0.key -> Attention(query, ., value, mask, length)

    Raises:
        PreconditionError: GP302, no caches, or a stateful model.
        UsageError: GP266, ``capacity`` is out of range.
        UnsupportedError: GP391, a cache to which no Concat appends, or that operators other than attention read; or no
            input with the length of the new tokens.
    """

    name = "static-cache"
    dialect = "onnx"
    requires = (HAS_CACHES, STATELESS)

    capacity: int = 2048

    def run(self, model: OnnxModel) -> Done | Skipped:
        check_positions("a capacity", self.capacity)
        caches = [cache for cache in analyze_caches(model).of_kind("kv") if not _is_fixed(cache)]
        if not caches:
            return Skipped("no cache grows")
        graph, rewriter = model.graph, model.rewriter()
        makers = {cache: graph.producer(graph.writes[cache.write].source()) for cache in caches}
        # GroupQueryAttention writes in place if past and present share a buffer.
        others = [cache for cache in caches if not _is_inside(graph, cache, makers[cache], "GroupQueryAttention")]
        if others:
            _write_in_place(model, rewriter, self.capacity, {cache: makers[cache] for cache in others})
        for cache in caches:
            sizes: list[int | None] = [None] * len(cache.shape or ())
            sizes[_sequence(cache)] = self.capacity
            for node in (graph.reads[cache.read], graph.writes[cache.write]):
                rewriter.resize_port(node, sizes)
        rewriter.finish()
        return Done({"caches": len(caches), "capacity": self.capacity})


def _is_fixed(cache: Cache) -> bool:
    return cache.axes.sequence is None or cache.shape is None or cache.capacity is not None


def _is_inside(graph: Graph, cache: Cache, maker: Node, op: str) -> bool:
    return maker.op == op and graph.reads[cache.read].outputs[0] in maker.inputs


def _sequence(cache: Cache) -> int:
    assert cache.axes.sequence is not None
    return cache.axes.sequence


def _write_in_place(model: OnnxModel, rewriter: OnnxRewriter, capacity: int, makers: dict[Cache, Node]) -> None:
    appended = {
        cache: _presents(model, cache, maker)
        for cache, maker in makers.items()
        if not _is_inside(model.graph, cache, maker, "Attention")
    }
    positions = PositionsInUse(model, rewriter, capacity)
    attention, writes = SlotAttention(model, rewriter, positions), _Writes(rewriter, positions)
    for operator in dict.fromkeys(maker for cache, maker in makers.items() if cache not in appended):
        writes.before_operator(operator)
    for cache, presents in appended.items():
        writes.in_place(cache, presents)
    if rewriter.opset >= _TENSOR_SCATTER:
        attention.fuse({cache: presents[0] for cache, presents in appended.items()})
    for cache in makers:
        positions.keep_shape(model.graph.reads[cache.read].outputs[0], cache.axes.sequence, positions.past, cache)
    for cache, presents in appended.items():
        attention.attend(cache, presents)


def _presents(model: OnnxModel, cache: Cache, maker: Node) -> tuple[Value, ...]:
    """Return the present and the values upstream, up to the Concat that appends.

    Raises:
        UnsupportedError: GP391, the present is not a Concat of the past and the new positions.
    """  # noqa: DOC501 - refusal is an UnsupportedError
    graph, made = model.graph, [maker.outputs[0]]
    while maker.op in {"Convert", "Identity"}:
        maker = graph.producer(maker.source())
        made.append(maker.outputs[0])
    past = graph.parameters[cache.read]
    if maker.op != "Concat" or len(maker.inputs) != 2 or maker.inputs[0] != past:
        raise refusal(cache, "is not appended to by a Concat of the past and the new positions")
    return tuple(made)


class _Writes:
    def __init__(self, rewriter: OnnxRewriter, positions: PositionsInUse) -> None:
        self._rewriter, self._positions = rewriter, positions
        self._write = rewriter.under("static_cache")
        self._slots: dict[object, Handle] = {}

    def before_operator(self, node: Node) -> None:
        """Write the caches of an ONNX Attention by TensorScatter, and set its nonpad_kv_seqlen.

        Raises:
            UnsupportedError: GP391, the opset lacks TensorScatter, or the operator joins heads in the last axis.
        """
        write, positions, opset = self._write, self._positions, self._rewriter.opset
        if opset < _TENSOR_SCATTER:
            raise UnsupportedError(
                "GP391",
                f"{node.called} of opset {opset} cannot read a cache of fixed capacity",
                f"run upgrade-opset{{to={_TENSOR_SCATTER}}} first",
            )
        attributes = {name: value for name, value in node.attributes.items() if name not in _HEADS}
        if any(node.attributes.get(name) for name in _HEADS):
            raise UnsupportedError("GP391", f"{node.called} joins heads in the last axis")
        query, *news = (node.source(port) for port in range(3))
        buffers = []
        for past, new in zip(node.inputs[4:6], news, strict=True):
            starts = positions.for_each_row(positions.past, new)
            buffers.append(write.op("TensorScatter", past, new, starts, axis=2, label="write"))
        mask = node.inputs[3]
        padded = None if mask is None else positions.padded(mask)
        used = positions.for_each_row(positions.total, query)
        made = write.op("Attention", query, *buffers, padded, None, None, used, **attributes)
        for value, handle in zip(node.outputs, (made, *buffers), strict=False):
            self._rewriter.replace(value, handle)

    def in_place(self, cache: Cache, presents: tuple[Value, ...]) -> None:
        """Write a cache by a scatter, whose result becomes the model's output.

        A Convert between them, to the same type, would copy the cache.
        """
        past, new = self._rewriter.graph.producer(presents[-1]).inputs
        assert new is not None
        axis = _sequence(cache)
        if self._rewriter.opset >= _TENSOR_SCATTER:
            starts = self._positions.for_each_row(self._positions.past, new)
            written = self._write.op("TensorScatter", past, new, starts, axis=axis, label="write")
        else:
            slots = self._slots_of(cache, new)
            written = self._write.op("ScatterElementsUpdate", past, slots, new, axis=axis, label="write")
        self._rewriter.replace(presents[0], written)
        for value in presents[1:]:
            self._rewriter.redirect_uses(value, written)
        self._positions.buffers |= dict.fromkeys(presents, written)

    def _slots_of(self, cache: Cache, new: Value) -> Handle:
        """Return the slot of each new element, shared by caches of equal shape."""
        write, axis = self._write, _sequence(cache)
        key = (axis, cache.shape)
        if key not in self._slots:
            count = write.op("Squeeze", write.size(new, axis), axes=[0])
            row = write.op("Add", write.op("Range", 0, count, 1), self._positions.past)
            column = write.op("Reshape", row, [-1] + [1] * (len(cache.shape or ()) - axis - 1))
            self._slots[key] = write.op("Broadcast", column, write.op("ShapeOf", new), label="slots")
        return self._slots[key]
