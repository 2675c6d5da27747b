"""The pass `static-cache`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewrite import attributes, input_at, node_name
from graphpass.engine.conditions import HAS_CACHES, STATELESS
from graphpass.engine.passes import Changed, Pass, PassResult, Skipped
from graphpass.errors import UnsupportedError
from graphpass.ir.positions import check_positions
from graphpass.ir.types import Dialect
from graphpass.passes.caches.onnx_capacity import CapacityRewrite, Names
from graphpass.passes.caches.onnx_capacity_attention import CapacityAttention
from graphpass.passes.caches.onnx_capacity_shapes import CapacityShapes

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx

    from graphpass.ir.cache import Cache

__all__ = ["StaticCache"]

#: From this version on there are TensorScatter and Attention's nonpad_kv_seqlen.
_TENSOR_SCATTER = 24


@dataclass(frozen=True)
class StaticCache(Pass[OnnxModel]):
    """Give caches that grow a fixed capacity: each step writes its positions into the buffer that it was given.

    A runtime that is given one buffer as past and as present (ONNX Runtime with IO binding) neither allocates nor
    copies a cache then. What a step is given stays what it was: positions are written behind the past, whose length is
    that of ``attention_mask`` less that of the new tokens. Only a model without such a mask gets an input ``past_len``
    (i64 [1]).

    Scores and probabilities cover all slots of the buffer only where they meet the cache: the scores are cut to the
    positions that there are, and the probabilities are padded with zeros. So masks, windows, biases and sinks stay
    exactly what they were. From opset 24 on plain attention becomes ONNX's Attention, which reads the buffer as it lies
    and is told by ``nonpad_kv_seqlen`` how many positions there are: no copy of keys for each query head, no transposed
    one. (`onnx.version_converter` leads exports there.) Models of the onnxruntime-genai builder (GroupQueryAttention)
    write in place by themselves once past and present are one buffer.

    Options:
        capacity: How many positions fit, new ones included.

    Shapes:
        kv ``[batch, heads, sequence, head_dim]`` in any order; the sequence becomes ``capacity``.

    Before:
        Concat(past_key_values.0.key, key) = present.0.key -> MatMul(query, .) -> .. -> Softmax -> MatMul(., value)
    After:
        ScatterElements(past_key_values.0.key, slots, key) = present.0.key -> MatMul(query, .) -> Slice(0:length) -> ..
        -> Softmax -> Pad(0, capacity) -> MatMul(., value); from opset 24 on
        TensorScatter(past_key_values.0.key, key) = present.0.key -> Attention(query, ., value, mask, length)

    Raises:
        PreconditionError: GP302, no caches, or stateful.
        UsageError: GP266, the capacity is no number of positions.
        UnsupportedError: GP391, a cache that no Concat appends to, or that something else than attention reads; or no
            input that tells how many tokens are new.
    """

    name: ClassVar[str] = "static-cache"
    dialect: ClassVar[Dialect | None] = "onnx"
    requires = (HAS_CACHES, STATELESS)

    capacity: int = 2048

    def run(self, model: OnnxModel) -> PassResult:
        """See `Pass.run`."""
        check_positions("a capacity", self.capacity)
        caches = [cache for cache in analyze_caches(model).of_kind("kv") if not _is_fixed(cache)]
        if not caches:
            return Skipped("no cache grows")
        names = Names(model)
        others = [cache for cache in caches if not names.is_inside(cache, "GroupQueryAttention")]
        if others:
            _rewritten(model, names, self.capacity, others)
        _declare(model.proto.graph, caches, self.capacity)
        return Changed(model, {"caches": len(caches), "capacity": self.capacity})


def _is_fixed(cache: Cache) -> bool:
    axis = cache.axes.sequence
    return axis is None or cache.shape is None or isinstance(cache.shape[axis], int)


def _declare(graph: onnx.GraphProto, caches: Iterable[Cache], capacity: int) -> None:
    """Say on the ports how many positions a cache has; what was said of values in between is no longer true."""
    axes = {name: cache.axes.sequence for cache in caches for name in (cache.read, cache.write)}
    for info in (*graph.input, *graph.output):
        if (axis := axes.get(info.name)) is not None:
            info.type.tensor_type.shape.dim[axis].dim_value = capacity


def _rewritten(model: OnnxModel, names: Names, capacity: int, caches: list[Cache]) -> None:
    """Let ``caches`` be written in place, and attention read them."""
    rewrite = CapacityRewrite(model, names, capacity)
    shapes, writes = CapacityShapes(rewrite), _Writes(rewrite)
    attention = CapacityAttention(rewrite, shapes)
    rewrite.tell_lengths()
    operators = {
        maker.output[0]: maker
        for cache in caches
        if (maker := names.makers.get(str(cache.write))) is not None and maker.op_type == "Attention"
    }
    for operator in operators.values():
        writes.before_operator(operator)
    appended = [cache for cache in caches if not names.is_inside(cache, "Attention")]
    for cache in appended:
        writes.in_place(cache)
    if rewrite.writer.opset >= _TENSOR_SCATTER:
        attention.fuse(appended)
    for cache in caches:
        shapes.keep_shape(cache.read, cache.axes.sequence, rewrite.past)
    for cache in appended:
        attention.attend(cache)
    rewrite.finish()


class _Writes:
    """Writes caches in place, in a graph whose caches were appended to."""

    def __init__(self, rewrite: CapacityRewrite) -> None:
        self._rewrite = rewrite
        self._slots: dict[object, str] = {}

    def before_operator(self, node: onnx.NodeProto) -> None:
        """Take the caches out of an Attention of ONNX: TensorScatter writes them, and it is told how much to read."""
        writer = self._rewrite.writer
        if writer.opset < _TENSOR_SCATTER:
            raise UnsupportedError(
                "GP391",
                f"Attention {node_name(node)} of opset {writer.opset} cannot read a cache of fixed capacity",
                f"convert the model to opset {_TENSOR_SCATTER} with onnx.version_converter first",
            )
        given = attributes(node)
        operands, pasts, presents = list(node.input[:3]), list(node.input[4:6]), list(node.output[1:3])
        heads = [given.pop(name, 0) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
        if heads[0]:
            raise UnsupportedError("GP391", f"Attention {node_name(node)} has its heads in the last axis")
        for past, new, present in zip(pasts, operands[1:], presents, strict=True):
            writer.op(
                "TensorScatter",
                past,
                new,
                self._rewrite.for_each_row(self._rewrite.past, new),
                axis=2,
                output=present,
                label="write",
            )
        mask = input_at(node, 3)
        mask = self._rewrite.padded(mask) if mask else ""
        used = self._rewrite.for_each_row(self._rewrite.total, operands[0])
        writer.op("Attention", operands[0], *presents, mask, "", "", used, output=node.output[0], **given)
        self._rewrite.gone.append(node)

    def in_place(self, cache: Cache) -> None:
        """Put a scatter in the place of the Concat; it makes the model's output itself."""
        writer, names = self._rewrite.writer, self._rewrite.names
        concat = names.append(cache)
        new, axis, present = concat.input[1], _sequence(cache), str(cache.write)
        if writer.opset >= _TENSOR_SCATTER:
            starts = self._rewrite.for_each_row(self._rewrite.past, new)
            writer.op("TensorScatter", cache.read, new, starts, axis=axis, output=present, label="write")
        else:
            writer.op(
                "ScatterElements", cache.read, self._slots_of(cache, new), new, axis=axis, output=present, label="write"
            )
        # Where a conversion to the type that it has already makes the output, it would be a copy.
        node = names.makers[present]
        self._rewrite.gone.append(node)
        while node is not concat:
            node = names.makers[node.input[0]]
            self._rewrite.gone.append(node)
            self._rewrite.redirect(node.output[0], present)

    def _slots_of(self, cache: Cache, new: str) -> str:
        """For each new element the slot that it goes to, of the shape of ``new``; caches of one shape share them."""
        writer, axis = self._rewrite.writer, _sequence(cache)
        key = (axis, cache.shape)
        if key not in self._slots:
            length = writer.op("Squeeze", writer.size(new, axis), writer.integers([0]))
            row = writer.op(
                "Add", writer.op("Range", writer.integers(0), length, writer.integers(1)), self._rewrite.past
            )
            column = writer.op("Reshape", row, writer.integers([-1] + [1] * (len(cache.shape or ()) - axis - 1)))
            self._slots[key] = writer.op("Expand", column, writer.op("Shape", new), label="slots")
        return self._slots[key]


def _sequence(cache: Cache) -> int:
    assert cache.axes.sequence is not None
    return cache.axes.sequence
