"""Lower attention operators that compute query, key and value from weights."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.ir.values import MASKED
from graphpass.ir.writer import Handle
from graphpass.passes.lower.lowered_operator import LoweredOperator


@dataclass(frozen=True, slots=True)
class _Ports:
    """Input indices of one of the operators; ``None`` for inputs that it does not have."""

    mask: int
    past: int
    scores: int | None = None
    scales: tuple[int, int] | None = None
    zero_points: tuple[int, int] = (6, 7)


_INPUT, _WEIGHTS, _BIAS = range(3)

_PORTS = {"Attention": _Ports(mask=3, past=4, scores=5), "QAttention": _Ports(mask=5, past=8, scales=(3, 4))}


def keeps_past(operator: LoweredOperator) -> bool:
    """Return whether a com.microsoft Attention reads or returns a cache."""
    return operator.read(_PORTS["Attention"].past) is not None or bool(operator.native.outputs[1:])


def lower_projected_attention(operator: LoweredOperator) -> None:
    """Lower com.microsoft Attention or QAttention to products with weights and decomposed attention.

    OpenVINO's frontend (2026.4.1) has no rule for QAttention, and converts the cache of Attention to a form that is not
    recognized as key and value. `unpack` splits the cache of the lowered form, which `fuse-attention` fuses.

    Shapes:
        input ``[batch, length, size]``; weights ``[size, query + key + value]``; past and present ``[2, batch, heads,
        sequence, head_dim]``; mask ``[batch]`` (numbers of keys), ``[batch, sequence]`` or ``[batch, length,
        sequence]``; additional scores broadcast to ``[batch, heads, length, sequence]``

    Before:
        Attention(input, weights, bias, mask, past)
    After:
        MatMul(input, weights) + bias -> Split -> Concat(Gather(past), .) -> MatMul * scale
        -> Add(Where(causal and mask, 0, -65504)) -> Softmax -> MatMul(., value)

    Raises:
        UnsupportedError: GP341, an attribute or input that cannot be lowered, or an unknown size.
    """
    _Block(operator).write_all()


class _Block:
    def __init__(self, operator: LoweredOperator) -> None:
        self._operator, self._write, self._ports = operator, operator.write, _PORTS[operator.native.op]
        self._heads: int = operator.attribute("num_heads")
        self._sizes = self._find_sizes()
        value = operator.value(_BIAS) or operator.value(_INPUT)
        self._type = value.element_type if value is not None else "dynamic"
        self._check()

    def _find_sizes(self) -> list[int]:
        """Return the numbers of columns of query, key and value."""
        columns = self._operator.size(_WEIGHTS, 1)
        sizes = [int(size) for size in self._operator.attribute("qkv_hidden_sizes", ())]
        if not sizes and isinstance(columns, int):
            sizes = [columns // 3] * 3
        if sum(sizes) != columns or any(size % self._heads for size in sizes):
            raise self._operator.refusal(f"its weights have {columns} columns, not heads of query, key and value")
        return sizes

    def _check(self) -> None:
        operator = self._operator
        if self._type not in {"f16", "f32"}:
            raise operator.refusal(f"its element type is {self._type}")
        for name in ("do_rotary", "past_present_share_buffer"):
            if operator.attribute(name, 0):
                raise operator.refusal(f"it has {name} = {operator.attribute(name)}")

    def write_all(self) -> None:
        operator, write = self._operator, self._write
        projected = write.split(self._projected(), 2, self._sizes)
        query, key, value = (self._by_heads(part, size) for part, size in zip(projected, self._sizes, strict=True))
        key, value = (self._appended(new, place) for place, new in enumerate((key, value)))
        scale = operator.attribute("scale", 0.0) or (self._sizes[0] // self._heads) ** -0.5
        scores = write.op("MatMul", query, write.op("Transpose", key, order=[0, 1, 3, 2]))
        scores = write.op("Multiply", scores, operator.factor(scale, self._type), label="Scale")
        result = write.op("MatMul", write.op("Softmax", self._masked(scores, key), axis=-1), value)
        rows = write.op("Transpose", result, order=[0, 2, 1, 3])
        operator.replace(0, write.op("Reshape", rows, [0, 0, self._sizes[2]]))
        if len(operator.native.outputs) > 1:
            parts = [write.op("Unsqueeze", part, axes=[0]) for part in (key, value)]
            operator.replace(1, write.op("Concat", *parts, axis=0))

    def _projected(self) -> Handle:
        operator, write, scales = self._operator, self._write, self._ports.scales
        operands = [operator.read(_INPUT), operator.read(_WEIGHTS)]
        if scales is None:
            product = write.op("MatMul", *operands)
        else:
            points = [operator.read(port) for port in self._ports.zero_points]
            if points[0] is None and points[1] is not None:
                raise operator.refusal("its weights have a zero point and its input does not")
            given = [point for point in points if point is not None]
            product = write.op("MatMulInteger", *operands, *given, domain="")
            scale = write.op("Multiply", *map(operator.read, scales))
            product = write.op("Multiply", write.convert(product, self._type), scale, label="Dequantized")
        return product if operator.read(_BIAS) is None else write.op("Add", product, operator.read(_BIAS))

    def _by_heads(self, part: Handle, size: int) -> Handle:
        write = self._write
        split = write.op("Reshape", part, [0, 0, self._heads, size // self._heads])
        return write.op("Transpose", split, order=[0, 2, 1, 3])

    def _appended(self, new: Handle, place: int) -> Handle:
        past = self._operator.read(self._ports.past)
        if past is None:
            return new
        index = self._write.constant(place, "Place", "i64")
        return self._write.op("Concat", self._write.op("Gather", past, index, axis=0), new, axis=2)

    def _masked(self, scores: Handle, key: Handle) -> Handle:
        """Return the scores with the additional ones, and `MASKED` added for hidden keys."""
        operator, write = self._operator, self._write
        further = operator.read(self._ports.scores) if self._ports.scores is not None else None
        scores = scores if further is None else write.op("Add", scores, further)
        conditions = [*self._causal(key), *self._padding(key)]
        if not conditions:
            return scores
        condition = conditions[0] if len(conditions) == 1 else write.op("LogicalAnd", *conditions)
        numbers = (write.number(value, self._type) for value in (0.0, MASKED))
        return write.op("Add", scores, write.op("Select", condition, *numbers, label="Mask"))

    def _causal(self, key: Handle) -> list[Handle]:
        write = self._write
        if not self._operator.attribute("unidirectional", 0):
            return []
        length = write.op("Squeeze", write.size(self._operator.read(_INPUT), 1), axes=[0])
        total = self._columns(key)
        queries = write.op("Range", write.op("Subtract", total, length), total, 1)
        return [write.op("LessEqual", self._keys(key), write.op("Unsqueeze", queries, axes=[1]))]

    def _padding(self, key: Handle) -> list[Handle]:
        operator, write, port = self._operator, self._write, self._ports.mask
        mask, value = operator.read(port), operator.value(port)
        if mask is None:
            return []
        rank = None if value is None else value.rank
        if rank == 1 and operator.size(port, 0) in {operator.size(_INPUT, 0)} - {None}:
            lengths = write.op("Unsqueeze", write.convert(mask, "i64"), axes=[1, 2, 3])
            return [write.op("Less", self._keys(key), lengths)]
        if rank not in {2, 3}:
            raise operator.refusal(f"its mask {mask.name} is not a row length, [batch, keys] or [batch, length, keys]")
        return [write.op("Unsqueeze", write.convert(mask, "boolean"), axes=[1, 2] if rank == 2 else [1])]

    def _columns(self, key: Handle) -> Handle:
        return self._write.op("Squeeze", self._write.size(key, 2), axes=[0])

    def _keys(self, key: Handle) -> Handle:
        return self._write.op("Range", 0, self._columns(key), 1)
