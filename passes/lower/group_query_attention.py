"""Lower GroupQueryAttention."""

from __future__ import annotations

from graphpass.analysis.equations.row_lengths import rows_are_full, summed_mask
from graphpass.ir.graph import Value
from graphpass.ir.operators import NORM_WEIGHTS
from graphpass.ir.values import MASKED
from graphpass.ir.writer import Handle
from graphpass.passes.lower.lowered_operator import LoweredOperator
from graphpass.passes.lower.rotary_embedding import angles, lower_rotation

_KEY, _VALUE, _PAST_KEY, _PAST_VALUE, _LENGTHS, _TOTAL, _COS, _SIN, _POSITIONS, _BIAS, _SINK = range(1, 12)

#: Scales of quantized caches.
_SCALES = (12, 13)


def lower_group_query_attention(operator: LoweredOperator) -> None:
    """Lower com.microsoft GroupQueryAttention to rotary embedding, a growing cache and decomposed attention.

    OpenVINO's frontend converts the operator to a form that the CPU plugin does not fuse, and that computes batches
    incorrectly. `fuse-attention` fuses the decomposed attention. Supported are packed operands, rotary embedding
    (interleaved or halves, of whole or partial heads), scale, window, soft cap, sinks, smooth softmax, norms of query
    and key, and the additive bias.

    The operator counts positions by ``seqlens_k``, and assumes that padding follows them. Models compute ``seqlens_k``
    as the sum of their attention mask. The lowering reads the mask itself: positions are its running sum, and keys with
    mask 0 are excluded, so that padding may be left or right. If ``seqlens_k`` counts all positions of each row, as in
    models of `fuse-group-query-attention`, the bias masks the padding, and is kept.

    Past and present grow. Ports of a cache in a shared buffer of fixed size are declared with a dynamic length. A cache
    that stores only a window (``sliding_window_cache``) stores all positions after the lowering, and positions before
    the window are masked.

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
        UnsupportedError: GP341, an attribute or input that cannot be lowered, an unknown size, or lengths that are not
            the sum of an attention mask.
    """
    _Block(operator).write_all()


class _Block:
    def __init__(self, operator: LoweredOperator) -> None:
        self._operator, self._write, self._once = operator, operator.write, operator.once
        self._heads: int = operator.attribute("num_heads")
        self._kv_heads: int = operator.attribute("kv_num_heads")
        self._check()
        self._head_dim = self._find_head_dim()
        self._type = self._element_type()

    def _check(self) -> None:
        operator = self._operator
        for port in _SCALES:
            if (scale := operator.read(port)) is not None:
                raise operator.refusal(f"{scale.name} quantizes its caches", "run dequantize-caches first")
        for name in ("qk_output", "kv_cache_bit_width"):
            if operator.attribute(name, 0):
                raise operator.refusal(f"it has {name} = {operator.attribute(name)}")
        if len(operator.native.outputs) > 3 and operator.native.outputs[3].name:
            raise operator.refusal("it returns its scores")
        for key, value, past in ((_KEY, _VALUE, ""), (_PAST_KEY, _PAST_VALUE, "past ")):
            if (operator.read(key) is None) != (operator.read(value) is None):
                raise operator.refusal(f"its {past}key and {past}value are not both present")

    def _find_head_dim(self) -> int:
        size = self._operator.size(0, -1)
        heads = self._heads + (2 * self._kv_heads if self._operator.read(_KEY) is None else 0)
        if not isinstance(size, int) or size % heads:
            raise self._operator.refusal(f"its head_dim is unknown: the last dimension of its query is {size}")
        return size // heads

    def _element_type(self) -> str:
        values = [self._operator.value(port) for port in (0, _KEY, _PAST_KEY, _COS)]
        types = [value.element_type for value in values if value is not None and value.element_type != "dynamic"]
        if not types:
            raise self._operator.refusal("its element type is unknown")
        return types[0]

    def write_all(self) -> None:
        operator, write = self._operator, self._write
        self._declare_ports()
        query, key, value = self._operands()
        if operator.attribute("do_rotary", 0):
            query, key = self._rotated(query, key)
        key, value = self._appended(_PAST_KEY, key), self._appended(_PAST_VALUE, value)
        keys = write.op("Transpose", self._expanded(key), order=[0, 1, 3, 2])
        scale = operator.factor(operator.attribute("scale", 0.0) or self._head_dim**-0.5, self._type)
        scores = write.op("Multiply", write.op("MatMul", query, keys), scale, label="Scale")
        result = write.op("MatMul", self._weights(self._masked(scores)), self._expanded(value))
        rows = write.op("Transpose", result, order=[0, 2, 1, 3])
        operator.replace(0, write.op("Reshape", rows, [0, 0, self._heads * self._head_dim]))
        operator.replace(1, key)
        operator.replace(2, value)

    def _declare_ports(self) -> None:
        """Declare head_dim and a dynamic length for caches at the model's ports."""
        native, graph = self._operator.native, self._operator.rewriter.surgery.graph
        ports = self._once("ports", lambda: {id(port) for port in (*graph.inputs, *graph.outputs)})
        for tensor in (*native.inputs[_PAST_KEY:_LENGTHS], *native.outputs[1:3]):
            if id(tensor) not in ports or tensor.shape is None or len(tensor.shape) != 4:
                continue
            length = tensor.shape[2]
            if isinstance(length, int):
                length = "total_sequence_length" if tensor.inputs else "past_sequence_length"
            tensor.shape = [*tensor.shape[:2], length, self._head_dim]

    def _operands(self) -> list[Handle]:
        """Return query, key and value as ``[batch, heads, length, head_dim]``."""
        write, size = self._write, self._head_dim
        heads = [self._heads, self._kv_heads, self._kv_heads]
        parts = [self._operator.read(port) for port in (0, _KEY, _VALUE)]
        if parts[1] is None:
            parts = write.split(parts[0], 2, [number * size for number in heads])
        split = [write.op("Reshape", part, [0, 0, number, size]) for part, number in zip(parts, heads, strict=True)]
        norms = zip(split, NORM_WEIGHTS, "qk", strict=False)
        split[:2] = [self._normed(part, port, letter) for part, port, letter in norms]
        return [write.op("Transpose", part, order=[0, 2, 1, 3]) for part in split]

    def _normed(self, part: Handle, port: int, letter: str) -> Handle:
        """Return heads after the operator's norm, if it has one."""
        gamma = self._operator.read(port)
        if gamma is None:
            return part
        both = self._operator.attribute("qk_norm_epsilon", 1e-6)
        epsilon = self._operator.attribute(f"{letter}_norm_epsilon", both)
        name = "SimplifiedLayerNormalization"
        return self._write.op(name, part, gamma, label=f"{letter}_norm", domain="", axis=-1, epsilon=epsilon)

    def _rotated(self, query: Handle, key: Handle) -> list[Handle]:
        operator, write = self._operator, self._write
        half = operator.size(_COS, -1)
        if not isinstance(half, int) or half != operator.size(_SIN, -1):
            raise operator.refusal("the sizes of its cos_cache and sin_cache are unknown or differ")
        interleaved = bool(operator.attribute("rotary_interleaved", 0))
        positions = self._positions()

        def table(port: int) -> Handle:
            key = ("angles", operator.value(port), positions.name, interleaved)
            return self._once(key, lambda: angles(write, operator.read(port), positions, interleaved=interleaved))

        cos, sin = table(_COS), table(_SIN)
        sizes = (self._head_dim, 2 * half)
        return [lower_rotation(write, part, cos, sin, sizes, interleaved=interleaved) for part in (query, key)]

    def _positions(self) -> Handle:
        """Return the positions of the new tokens, ``[batch, length]``."""
        positions = self._operator.read(_POSITIONS)
        if positions is not None:
            return positions
        mask = self._mask()
        if mask is not None:
            return self._positions_in_mask(mask)
        key = ("row", self._operator.value(_TOTAL))
        return self._once(key, lambda: self._write.op("Unsqueeze", self._new_positions(), axes=[0]))

    def _positions_in_mask(self, mask: Value) -> Handle:
        """Return the positions of the new tokens, which are the last columns of ``mask``."""
        write = self._write
        return self._once(
            ("positions", mask), lambda: write.slice(self._running(mask), write.op("Negative", self._length()), None, 1)
        )

    def _running(self, mask: Value) -> Handle:
        """Return the number of tokens before each column; 0 for left padding."""
        write = self._write

        def make() -> Handle:
            counted = write.op("CumSum", write.op("Convert", mask, to="i64"), axis=1)
            return write.op("Maximum", write.op("Subtract", counted, 1), 0)

        return self._once(("running", mask), make)

    def _length(self) -> Handle:
        """Return the number of new tokens, i64 [1]."""
        return self._once("length", lambda: self._write.size(self._operator.read(0), 1))

    def _columns(self) -> Handle:
        """Return the total sequence length, i64 scalar."""
        write, total = self._write, self._operator.read(_TOTAL)
        key = ("columns", self._operator.value(_TOTAL))
        return self._once(key, lambda: write.op("Reshape", write.op("Convert", total, to="i64"), []))

    def _new_positions(self) -> Handle:
        """Return the columns of the new tokens, i64 [length]."""
        write = self._write

        def make() -> Handle:
            start = write.op("Subtract", self._columns(), write.op("Squeeze", self._length(), axes=[0]))
            return write.op("Range", start, self._columns(), 1)

        return self._once(("new", self._operator.value(_TOTAL)), make)

    def _mask(self) -> Value | None:
        """Return the mask whose sum is ``seqlens_k``; ``None`` if rows have no padding."""
        operator = self._operator
        mask = summed_mask(operator.rewriter.graph, operator.value(_LENGTHS))
        if mask is not None or operator.size(0, 0) == 1 or self._rows_are_full():
            return mask
        raise operator.refusal(
            f"{operator.read(_LENGTHS).name}, its seqlens_k, is not the sum of an attention mask, so that padding "
            "cannot be identified",
            "export the model with an attention mask, or with batch size 1",
        )

    def _rows_are_full(self) -> bool:
        """Return whether ``seqlens_k`` is the total sequence length, less 1, in each row."""
        operator, graph = self._operator, self._operator.rewriter.graph
        lengths, total = operator.value(_LENGTHS), operator.value(_TOTAL)
        if lengths is None or total is None:
            return False

        full: bool = self._once(("full", lengths, total), lambda: rows_are_full(graph, lengths, total))
        return full

    def _additive_mask(self) -> Handle:
        """Return 0 for keys in the effective mask, else `MASKED`: ``[batch, 1, length, sequence]``."""
        operator, write, mask = self._operator, self._write, self._mask()
        window = operator.attribute("local_window_size", -1)
        causal = bool(operator.attribute("causal", 1))

        def make() -> Handle:
            keys = write.op("Unsqueeze", write.op("Range", 0, self._columns(), 1), axes=[0, 1, 2])
            queries = write.op("Unsqueeze", self._new_positions(), axes=[0, 1, 3])
            terms = [write.op("LessEqual", keys, queries)] if causal else []
            if window > 0:
                terms.append(self._in_window(keys, queries, mask, window))
            if mask is not None:
                terms.append(write.op("Unsqueeze", write.op("Convert", mask, to="boolean"), axes=[1, 2]))
            condition = terms[0] if terms else write.op("GreaterEqual", keys, 0)
            for term in terms[1:]:
                condition = write.op("LogicalAnd", condition, term)
            numbers = (write.number(value, self._type) for value in (0.0, MASKED))
            return write.op("Select", condition, *numbers, label="Mask")

        return self._once(("mask", mask, operator.value(_TOTAL), window, causal, self._type), make)

    def _in_window(self, keys: Handle, queries: Handle, mask: Value | None, window: int) -> Handle:
        """Return whether keys are in the window by positions, not columns: padding has no position."""
        write = self._write
        if mask is not None:
            keys = write.op("Unsqueeze", self._running(mask), axes=[1, 2])
            queries = write.op("Unsqueeze", self._positions_in_mask(mask), axes=[1, 3])
        return write.op("Greater", keys, write.op("Subtract", queries, window))

    def _masked(self, scores: Handle) -> Handle:
        write = self._write
        cap, bias = self._operator.attribute("softcap", 0.0), self._operator.read(_BIAS)
        if cap:
            limit = self._operator.factor(cap, self._type)
            scores = write.op("Multiply", write.op("Tanh", write.op("Divide", scores, limit)), limit)
        if bias is not None:
            scores = write.op("Add", scores, bias)
        return write.op("Add", scores, self._additive_mask())

    def _weights(self, scores: Handle) -> Handle:
        """Return the probabilities; with a sink, the softmax has an additional column, which is dropped."""
        write, sink = self._write, self._operator.read(_SINK)
        if sink is None:
            if self._operator.attribute("smooth_softmax", 0) <= 0:
                return write.op("Softmax", scores, axis=-1)
            sink = write.op("Broadcast", write.number(0.0, self._type), [self._heads])
        column = write.op("Reshape", sink, [1, self._heads, 1, 1])
        rows = write.slice(write.op("ShapeOf", scores), 0, 3, 0)
        column = write.op("Broadcast", column, write.op("Concat", rows, [1], axis=0))
        weights = write.op("Softmax", write.op("Concat", scores, column, axis=3), axis=-1)
        return write.slice(weights, 0, -1, 3)

    def _appended(self, past: int, new: Handle) -> Handle:
        cache = self._operator.read(past)
        return new if cache is None else self._write.op("Concat", cache, new, axis=2)

    def _expanded(self, value: Handle) -> Handle:
        write, groups = self._write, self._heads // self._kv_heads
        if groups == 1:
            return value
        copies = write.op("Broadcast", write.op("Unsqueeze", value, axes=[2]), [1, 1, groups, 1, 1])
        return write.op("Reshape", copies, [0, self._heads, -1, self._head_dim])
