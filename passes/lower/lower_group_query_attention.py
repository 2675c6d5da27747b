"""The pass `lower-group-query-attention`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from graphpass.analysis.masks.padding_mask import summed_mask
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewrite import NodeWriter, attributes, input_at, node_name, rewrite_nodes
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.errors import UnsupportedError
from graphpass.ir.types import Dialect
from graphpass.ir.values import MASKED
from graphpass.passes.lower.onnx_rotary import angles, rotated

if TYPE_CHECKING:
    import onnx

    from graphpass.ir.graph import Graph, Node

__all__ = ["LowerGroupQueryAttention"]

_KEY, _VALUE, _PAST_KEY, _PAST_VALUE, _LENGTHS, _TOTAL, _COS, _SIN, _POSITIONS, _BIAS, _SINK = range(1, 12)

#: Inputs that are not lowered: scales of a quantized cache, and norms of query and key.
_REFUSED_INPUTS = {12: "a quantized cache", 13: "a quantized cache", 14: "norms inside", 15: "norms inside"}


@dataclass(frozen=True)
class LowerGroupQueryAttention(Pass[OnnxModel]):
    """Write com.microsoft GroupQueryAttention as rotary embedding, a growing cache and plain attention.

    OpenVINO's frontend reads the operator, but the CPU plugin does not fuse what it makes of it, and a batch is wrong.
    Plain attention is what `fuse-attention` takes. Kept are packed operands, rotary embedding of both kinds and of a
    part of a head, scale, window, soft cap, sinks, smooth Softmax and the additive bias.

    The operator is told how many positions count by ``seqlens_k``, and takes padding to stand behind them. Models
    compute that as the sum of their attention mask, so the mask itself is read instead: positions are its running sum,
    and keys count where it is not 0, on whichever side the padding stands. Past and present grow: a model whose cache
    is a shared buffer of fixed size declares its ports with a length that is not known, and one that keeps a window
    alone (``sliding_window_cache``) keeps all positions, of which the mask hides those before the window.

    Shapes:
        query, key, value ``[batch, length, heads * head_dim]``, or all in one; past and present ``[batch, kv_heads,
        sequence, head_dim]``; attention mask ``[batch, past length + length]``.

    Before:
        GroupQueryAttention(query, key, value, past_key, past_value, Sub(ReduceSum(attention_mask), 1), ..)
    After:
        Concat(past_key, RotaryEmbedding(key)) -> Unsqueeze -> Expand -> Reshape -> MatMul(query, .) * scale
        -> Add(Where(causal and attention_mask, 0, -65504)) -> Softmax -> MatMul(., value), positions from
        CumSum(attention_mask)

    Raises:
        UnsupportedError: GP340 an opset before 13; GP341 an attribute or input that cannot be lowered, a size that is
            not known, or lengths that are not the sum of an attention mask.
    """

    name: ClassVar[str] = "lower-group-query-attention"
    dialect: ClassVar[Dialect | None] = "onnx"

    def run(self, model: OnnxModel) -> PassResult:
        """See `Pass.run`."""
        graph = model.graph
        known = {node.outputs[0].name: node for node in graph.of_op("GroupQueryAttention")}
        shared: dict[tuple[object, ...], str] = {}
        ports: dict[str, int] = {}

        def rewrite(native: onnx.NodeProto, writer: NodeWriter) -> None:
            node = known.get(native.output[0])
            if node is None:
                raise _refusal(native, "it is inside a body or a function")
            block = _Block(graph, node, native, writer, shared)
            block.write()
            ports.update(dict.fromkeys((*native.input[_PAST_KEY:_LENGTHS], *native.output[1:3]), block.head_dim))

        count = rewrite_nodes(model, lambda native: native.op_type == "GroupQueryAttention", rewrite)
        if not count:
            return Unchanged()
        _declare(model, ports)
        return Changed(model, {"attention lowered": count})


def _declare(model: OnnxModel, head_dims: dict[str, int]) -> None:
    """Say on the model's ports what size a head has, and that caches grow."""
    for past, info in [(True, info) for info in model.proto.graph.input] + [
        (False, info) for info in model.proto.graph.output
    ]:
        shape = info.type.tensor_type.shape
        if info.name not in head_dims or len(shape.dim) != 4:
            continue
        shape.dim[3].dim_value = head_dims[info.name]
        if shape.dim[2].HasField("dim_value"):
            shape.dim[2].dim_param = "past_sequence_length" if past else "total_sequence_length"


def _refusal(native: onnx.NodeProto, reason: str, hint: str | None = None) -> UnsupportedError:
    return UnsupportedError("GP341", f"{native.op_type} {node_name(native)} cannot be lowered: {reason}", hint)


class _Block:
    """One GroupQueryAttention and what stands for it."""

    def __init__(
        self,
        graph: Graph,
        node: Node,
        native: onnx.NodeProto,
        writer: NodeWriter,
        shared: dict[tuple[object, ...], str],
    ) -> None:
        self._graph, self._node, self._native = graph, node, native
        self._writer, self._shared = writer, shared
        self._given: dict[str, Any] = attributes(native)
        self._heads: int = self._given["num_heads"]
        self._kv_heads: int = self._given["kv_num_heads"]
        self._check()
        self.head_dim = self._head_dim()
        self._type = self._element_type()

    def _check(self) -> None:
        given, native = self._given, self._native
        for port, reason in _REFUSED_INPUTS.items():
            if input_at(native, port):
                raise _refusal(native, f"it has {reason}, {input_at(native, port)}")
        for name, usual in (("qk_output", 0), ("kv_cache_bit_width", 0)):
            if given.get(name, usual) != usual:
                raise _refusal(native, f"it has {name} = {given[name]}")
        if len(native.output) > 3 and native.output[3]:
            raise _refusal(native, "it gives its scores back, too")
        if bool(input_at(native, _KEY)) != bool(input_at(native, _VALUE)):
            raise _refusal(native, "it has a key without a value, or the reverse")
        if bool(input_at(native, _PAST_KEY)) != bool(input_at(native, _PAST_VALUE)):
            raise _refusal(native, "it has a past key without a past value, or the reverse")

    def _head_dim(self) -> int:
        query = self._node.inputs[0]
        packed = self._heads + 2 * self._kv_heads
        heads = self._heads if input_at(self._native, _KEY) else packed
        size = query.shape[-1] if query is not None and query.shape else None
        if not isinstance(size, int) or size % heads:
            raise _refusal(self._native, f"the size of its heads is not known: its query has a last axis of {size}")
        return size // heads

    def _element_type(self) -> int:
        """ONNX's number of the type in which it computes."""
        from graphpass.dialects.onnx.tensors import element_code

        for port in (0, 1, _PAST_KEY, _COS):
            value = self._node.inputs[port] if port < len(self._node.inputs) else None
            if value is not None and value.element_type != "dynamic":
                return element_code(value.element_type)
        raise _refusal(self._native, "its element type is not known")

    def write(self) -> None:
        """Write all outputs of the operator."""
        writer, native = self._writer, self._native
        query, key, value = self._operands()
        if self._given.get("do_rotary", 0):
            query, key = self._rotated(query, key)
        outputs = [*native.output, "", ""]
        key = self._present(input_at(native, _PAST_KEY), key, outputs[1])
        value = self._present(input_at(native, _PAST_VALUE), value, outputs[2])
        keys = writer.op("Transpose", self._expanded(key), perm=[0, 1, 3, 2])
        scale = self._given.get("scale", 0.0) or self.head_dim**-0.5
        scores = writer.op("Mul", writer.op("MatMul", query, keys), writer.number(scale, self._type), label="Scale")
        weights = self._weights(self._masked(scores))
        result = writer.op("MatMul", weights, self._expanded(value))
        rows = writer.op("Transpose", result, perm=[0, 2, 1, 3])
        writer.op("Reshape", rows, writer.integers([0, 0, self._heads * self.head_dim]), output=outputs[0])

    def _operands(self) -> list[str]:
        """Query, key and value as ``[batch, heads, length, head_dim]``."""
        writer, size = self._writer, self.head_dim
        parts = list(self._native.input[:3])
        heads = [self._heads, self._kv_heads, self._kv_heads]
        if not input_at(self._native, _KEY):
            parts = writer.split(parts[0], [number * size for number in heads], 2)
        split = [
            writer.op("Reshape", part, writer.integers([0, 0, number, size]))
            for part, number in zip(parts, heads, strict=True)
        ]
        return [writer.op("Transpose", part, perm=[0, 2, 1, 3]) for part in split]

    def _rotated(self, query: str, key: str) -> tuple[str, str]:
        tables = [self._node.inputs[port] for port in (_COS, _SIN)]
        sizes = [table.shape[-1] if table is not None and table.shape else None for table in tables]
        if not isinstance(sizes[0], int) or sizes[0] != sizes[1]:
            raise _refusal(self._native, "the size of its cos_cache or sin_cache is not known")
        interleaved = bool(self._given.get("rotary_interleaved", 0))
        names = [input_at(self._native, port) for port in (_COS, _SIN)]
        positions = self._positions()
        cos, sin = (
            self._once(
                ("angles", table, positions, interleaved),
                lambda table=table: angles(self._writer, table, positions, interleaved=interleaved),
            )
            for table in names
        )
        both = (self.head_dim, 2 * sizes[0])
        first, second = (rotated(self._writer, part, cos, sin, both, interleaved=interleaved) for part in (query, key))
        return first, second

    def _once(self, key: tuple[object, ...], write: Any) -> str:
        """What ``write`` writes, shared by all that ask for the same; all layers of a model run the same step."""
        if key not in self._shared:
            self._shared[key] = write()
        return self._shared[key]

    def _positions(self) -> str:
        """Positions of the new tokens, ``[batch, length]``."""
        given = input_at(self._native, _POSITIONS)
        if given:
            return given
        mask = self._mask()
        if mask is None:
            return self._once(
                ("row", self._total()),
                lambda: self._writer.op("Unsqueeze", self._new_positions(), self._writer.integers([0])),
            )
        return self._once(("positions", mask), lambda: self._last(self._running(mask)))

    def _last(self, positions: str) -> str:
        """The columns of the new tokens."""
        first = self._writer.op("Neg", self._length())
        return self._writer.slice(positions, first, None, 1)

    def _running(self, mask: str) -> str:
        """The position of each column: how many before it count; padding in front has position 0."""
        writer = self._writer

        def write() -> str:
            counted = writer.op("CumSum", writer.op("Cast", mask, to=7), writer.integers(1))
            return writer.op("Max", writer.op("Sub", counted, writer.integers(1)), writer.integers(0))

        return self._once(("running", mask), write)

    def _length(self) -> str:
        """How many new tokens there are, i64 [1]."""
        return self._once(("length",), lambda: self._writer.size(self._native.input[0], 1))

    def _total(self) -> str:
        return input_at(self._native, _TOTAL)

    def _columns(self) -> str:
        """How many positions there are with the new ones, i64 scalar."""
        writer = self._writer

        def write() -> str:
            return writer.op("Reshape", writer.op("Cast", self._total(), to=7), writer.integers([]))

        return self._once(("columns", self._total()), write)

    def _new_positions(self) -> str:
        """Columns of the new tokens, i64 [length]."""
        writer = self._writer

        def write() -> str:
            length = writer.op("Squeeze", self._length(), writer.integers([0]))
            start = writer.op("Sub", self._columns(), length)
            return writer.op("Range", start, self._columns(), writer.integers(1))

        return self._once(("new", self._total()), write)

    def _mask(self) -> str | None:
        """The attention mask of which ``seqlens_k`` is the sum; ``None`` where a batch of 1 has no padding to hide."""
        found = summed_mask(self._graph, self._node.inputs[_LENGTHS])
        if found is not None:
            return found
        query = self._node.inputs[0]
        if query is not None and query.shape is not None and query.shape[0] == 1:
            return None
        raise _refusal(
            self._native,
            f"{input_at(self._native, _LENGTHS)}, its seqlens_k, is not the sum of an attention mask, so that padding "
            "cannot be told from tokens",
            "export the model with an attention mask, or with a batch of 1",
        )

    def _additive_mask(self) -> str:
        """0 where a key counts for a query, `MASKED` elsewhere: ``[batch, 1, length, sequence]``."""
        writer, mask = self._writer, self._mask()
        window = self._given.get("local_window_size", -1)
        causal = bool(self._given.get("causal", 1))

        def write() -> str:
            zero = writer.integers(0)
            keys = writer.op("Range", zero, self._columns(), writer.integers(1))
            keys = writer.op("Unsqueeze", keys, writer.integers([0, 1, 2]))
            queries = writer.op("Unsqueeze", self._new_positions(), writer.integers([0, 1, 3]))
            terms = [writer.op("LessOrEqual", keys, queries)] if causal else []
            if window > 0:
                terms.append(self._in_window(keys, queries, mask, window))
            if mask is not None:
                real = writer.op("Cast", mask, to=9)
                terms.append(writer.op("Unsqueeze", real, writer.integers([1, 2])))
            condition = terms[0] if terms else writer.op("GreaterOrEqual", keys, zero)
            for term in terms[1:]:
                condition = writer.op("And", condition, term)
            numbers = (writer.number(value, self._type) for value in (0.0, MASKED))
            return writer.op("Where", condition, *numbers, label="Mask")

        return self._once(("mask", mask, self._total(), window, causal, self._type), write)

    def _in_window(self, keys: str, queries: str, mask: str | None, window: int) -> str:
        """Counted in positions, of which padding between tokens has none."""
        writer = self._writer
        if mask is not None:
            positions = self._running(mask)
            keys = writer.op("Unsqueeze", positions, writer.integers([1, 2]))
            queries = writer.op("Unsqueeze", self._positions_in_mask(mask), writer.integers([1, 3]))
        return writer.op("Greater", keys, writer.op("Sub", queries, writer.integers(window)))

    def _positions_in_mask(self, mask: str) -> str:
        return self._once(("positions", mask), lambda: self._last(self._running(mask)))

    def _masked(self, scores: str) -> str:
        writer = self._writer
        cap = self._given.get("softcap", 0.0)
        if cap:
            limit = writer.number(cap, self._type)
            scores = writer.op("Mul", writer.op("Tanh", writer.op("Div", scores, limit)), limit)
        bias = input_at(self._native, _BIAS)
        if bias:
            scores = writer.op("Add", scores, bias)
        return writer.op("Add", scores, self._additive_mask())

    def _weights(self, scores: str) -> str:
        """The probabilities; a sink takes its share of them and is dropped."""
        writer, sink = self._writer, input_at(self._native, _SINK)
        if not sink and not self._given.get("smooth_softmax", 0) > 0:
            return writer.op("Softmax", scores, axis=-1)
        if not sink:
            zero = writer.number(0.0, self._type)
            sink = writer.op("Expand", zero, writer.integers([self._heads]))
        column = writer.op("Reshape", sink, writer.integers([1, self._heads, 1, 1]))
        rows = writer.slice(writer.op("Shape", scores), 0, 3, 0)
        column = writer.op("Expand", column, writer.op("Concat", rows, writer.integers([1]), axis=0))
        weights = writer.op("Softmax", writer.op("Concat", scores, column, axis=3), axis=-1)
        return writer.slice(weights, 0, -1, 3)

    def _present(self, past: str, new: str, output: str) -> str:
        if past:
            return self._writer.op("Concat", past, new, axis=2, output=output)
        return self._writer.op("Identity", new, output=output) if output else new

    def _expanded(self, value: str) -> str:
        """Each head of keys or values once for each query head that reads it."""
        writer, groups = self._writer, self._heads // self._kv_heads
        if groups == 1:
            return value
        copies = writer.op("Unsqueeze", value, writer.integers([2]))
        copies = writer.op("Expand", copies, writer.integers([1, 1, groups, 1, 1]))
        return writer.op("Reshape", copies, writer.integers([0, self._heads, -1, self.head_dim]))
