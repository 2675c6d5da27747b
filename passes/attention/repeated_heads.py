"""Repeat heads of keys and values for the query heads that read them."""

from __future__ import annotations

from graphpass.ir.graph import Value
from graphpass.ir.values import fixed_size
from graphpass.ir.writer import Operand, Writer


def repeated_heads(write: Writer, value: Value, heads: int, times: int) -> Operand:
    """Repeat each head for consecutive query heads, in the form that runtimes fuse.

    Args:
        write: Writer of the new nodes.
        value: ``[batch, heads, sequence, size]``.
        heads: Number of heads of ``value``.
        times: Number of query heads that read each.

    Returns:
        ``[batch, heads * times, sequence, size]``.
    """
    if times == 1:
        return value
    copies = write.op("Unsqueeze", value, axes=[2])
    copies = write.op("Broadcast", copies, [1, 1, times, 1, 1], mode="bidirectional")
    size = fixed_size(value, 3)
    if size is not None:
        return write.op("Reshape", copies, [0, heads * times, -1, size], zero_keeps=True)
    own = write.op("Gather", write.op("ShapeOf", value), [3], axis=0, label="size")
    shape = write.op("Concat", [0, heads * times, -1], own, axis=0, label="shape")
    return write.op("Reshape", copies, shape, zero_keeps=True)
