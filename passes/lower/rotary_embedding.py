"""Lower RotaryEmbedding to the form of exports of transformers."""

from __future__ import annotations

from graphpass.ir.writer import Handle, Operand, Writer
from graphpass.passes.lower.lowered_operator import LoweredOperator

_INPUT, _POSITIONS, _COS, _SIN = range(4)


def lower_rotary_embedding(operator: LoweredOperator) -> None:
    """Lower com.microsoft RotaryEmbedding to standard operators.

    OpenVINO's frontend (2026.4.1) converts the operator incorrectly if it rotates a part of each head or has one start
    position, and fails if ``interleaved`` is omitted. It converts ONNX's RotaryEmbedding correctly.

    Shapes:
        input ``[batch, length, heads * head_dim]`` or ``[batch, heads, length, head_dim]``, positions ``[batch,
        length]`` or ``[1]``, caches ``[positions, rotary_dim / 2]``.

    Before:
        RotaryEmbedding(input, position_ids, cos_cache, sin_cache)
    After:
        input * cos + Concat(-second half, first half) * sin, with cos and sin gathered by position_ids

    Raises:
        UnsupportedError: GP341, packed batches, or unknown sizes.
    """
    if operator.attribute("is_packed_batching", 0):
        raise operator.refusal("it has is_packed_batching = 1")
    value, half, last = operator.value(_INPUT), operator.size(_COS, -1), operator.size(_INPUT, -1)
    if value is None or value.rank not in {3, 4} or not isinstance(last, int) or not isinstance(half, int):
        raise operator.refusal("the shape of its input or of its cos_cache is unknown")
    rotary_dim = operator.attribute("rotary_embedding_dim", 0) or 2 * half
    # If a part of a head is rotated, num_heads determines head_dim, which the tables do not have.
    count = operator.attribute("num_heads", 0)
    size = last if value.rank == 4 else last // count if count else rotary_dim
    heads, write = operator.read(_INPUT), operator.write
    if value.rank == 3:
        heads = write.op("Transpose", write.op("Reshape", heads, [0, 0, last // size, size]), order=[0, 2, 1, 3])
    interleaved = bool(operator.attribute("interleaved", 0))
    positions = _positions(operator, heads)
    cos, sin = (angles(write, operator.read(port), positions, interleaved=interleaved) for port in (_COS, _SIN))
    result = lower_rotation(write, heads, cos, sin, (size, rotary_dim), interleaved=interleaved)
    if value.rank == 3:
        result = write.op("Reshape", write.op("Transpose", result, order=[0, 2, 1, 3]), [0, 0, last])
    operator.replace(0, result)


def _positions(operator: LoweredOperator, heads: Handle) -> Handle:
    """Return positions ``[batch, length]``; an operand ``[1]`` is the position of the first token."""
    positions, write = operator.value(_POSITIONS), operator.write
    if positions is None or positions.rank not in {1, 2}:
        raise operator.refusal("the shape of its position_ids is unknown")
    if positions.rank == 2:
        return operator.read(_POSITIONS)
    steps = write.op("Range", 0, write.op("Squeeze", write.size(heads, 2), axes=[0]), 1)
    return write.op("Unsqueeze", write.op("Add", steps, operator.read(_POSITIONS)), axes=[0])


def angles(write: Writer, cache: Operand, positions: Operand, *, interleaved: bool) -> Handle:
    """Gather cosines or sines at ``positions``, one for each rotated channel.

    Args:
        write: Writer of the graph.
        cache: The rotary table ``[positions, rotary_dim / 2]``.
        positions: Positions, i64 ``[batch, length]``.
        interleaved: Whether a pair is adjacent channels; otherwise it has one channel of each half.

    Returns:
        The tensor ``[batch, 1, length, rotary_dim]``.
    """
    half = write.op("Unsqueeze", write.op("Gather", cache, positions, axis=0), axes=[1])
    if not interleaved:
        return write.op("Concat", half, half, axis=3)
    pairs = write.op("Unsqueeze", half, axes=[4])
    return write.op("Reshape", write.op("Concat", pairs, pairs, axis=4), [0, 0, 0, -1])


def lower_rotation(
    write: Writer, value: Handle, cos: Handle, sin: Handle, sizes: tuple[int, int], *, interleaved: bool
) -> Handle:
    """Write the rotary embedding of ``value``.

    Args:
        write: Writer of the graph.
        value: The tensor ``[batch, heads, length, head_dim]``.
        cos: Cosines, see `angles`.
        sin: Sines, see `angles`.
        sizes: head_dim and rotary_dim; channels from rotary_dim on are unchanged.
        interleaved: See `angles`.

    Returns:
        The rotated tensor, ``[batch, heads, length, head_dim]``.
    """
    whole, rotary_dim = sizes
    kept = write.slice(value, rotary_dim, whole, 3) if rotary_dim < whole else None
    if kept is not None:
        value = write.slice(value, 0, rotary_dim, 3)
    rotated = _rotated_pairs(write, value) if interleaved else _rotated_halves(write, value, rotary_dim)
    result = write.op("Add", write.op("Multiply", value, cos), write.op("Multiply", rotated, sin))
    return result if kept is None else write.op("Concat", result, kept, axis=3)


def _rotated_halves(write: Writer, value: Handle, size: int) -> Handle:
    first, second = write.slice(value, 0, size // 2, 3), write.slice(value, size // 2, size, 3)
    return write.op("Concat", write.op("Negative", second), first, axis=3)


def _rotated_pairs(write: Writer, value: Handle) -> Handle:
    split = write.op("Reshape", value, [0, 0, 0, -1, 2])
    first, second = write.slice(split, 0, 1, 4), write.slice(split, 1, 2, 4)
    return write.op("Reshape", write.op("Concat", write.op("Negative", second), first, axis=4), [0, 0, 0, -1])
