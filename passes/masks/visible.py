"""Write the condition that a query sees a key."""

from __future__ import annotations

from graphpass.ir.graph import Value
from graphpass.ir.rewriter import Handle, Writer


def visible_keys(write: Writer, mask: Value, tokens: Value) -> Handle:
    """Write ``place of the key <= place of the query and attention_mask``.

    Args:
        write: Writes the operators.
        mask: Input attention_mask ``[batch, total]``.
        tokens: Input of new tokens ``[batch, length, ..]``.

    Returns:
        boolean ``[batch, 1, length, total]``.
    """
    total, new = write.size(mask, 1, "total"), write.size(tokens, 1, "new")
    past = write.op("Subtract", total, new, label="past")
    start, end = (write.op("Squeeze", size, 0) for size in (past, total))
    keys = write.op("Unsqueeze", write.op("Range", 0, end, 1), axes=[0, 1, 2], label="keys")
    queries = write.op("Unsqueeze", write.op("Range", start, end, 1), axes=[0, 1, 3], label="queries")
    causal = write.op("LessEqual", keys, queries, label="causal")
    counted = write.op("Unsqueeze", write.op("Convert", mask, to="boolean"), axes=[1, 2], label="counted")
    return write.op("LogicalAnd", causal, counted, label="visible")
