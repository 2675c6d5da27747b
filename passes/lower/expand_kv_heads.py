"""Expand keys and values of ONNX's Attention to the heads of the query."""

from __future__ import annotations

from graphpass.ir.writer import Handle
from graphpass.passes.lower.lowered_operator import LoweredOperator

_QUERY, _KEY, _VALUE, _PAST_KEY = 0, 1, 2, 4


def has_unknown_heads(operator: LoweredOperator) -> bool:
    """Return whether an Attention without caches has unknown numbers of heads."""
    if (
        len(operator.native.outputs) != 1
        or operator.read(_PAST_KEY) is not None
        or "q_num_heads" in operator.native.attrs
    ):
        return False
    known = all(isinstance(operator.size(port, 1), int) for port in (_QUERY, _KEY))
    return not known and not _is_expanded(operator.read(_KEY))


def _is_expanded(key: Handle) -> bool:
    for operator in ("Reshape", "Expand", "Unsqueeze"):
        if not key.inputs or key.inputs[0].op != operator:
            return False
        key = key.inputs[0].inputs[0]
    return True


def expand_kv_heads(operator: LoweredOperator) -> None:
    """Repeat keys and values for each head of the query.

    OpenVINO's frontend (2026.4.1) expands kv heads only if both numbers of heads are static when it reads the operator;
    otherwise the model does not compile. The lowering reads the numbers from shapes at runtime. Attention is unchanged
    if both numbers are static, if it has a past as operand, or if it joins heads in the last axis.

    Shapes:
        query ``[batch, heads, length, head_dim]``, key and value ``[batch, kv_heads, sequence, head_dim]``.

    Before:
        Attention(query, key, value, ..)
    After:
        Attention(query, Reshape(Expand(Unsqueeze(key))), Reshape(Expand(Unsqueeze(value))), ..)
    """
    write = operator.write
    heads = write.size(operator.read(_QUERY), 1)
    for port in (_KEY, _VALUE):
        value = operator.read(port)
        times = write.op("Divide", heads, write.size(value, 1))
        wide = write.op("Unsqueeze", value, axes=[2])
        wide = write.op("Broadcast", wide, write.op("Concat", [1], [1], times, [1], [1], axis=0))
        sizes = write.op("Concat", [0], heads, [-1], write.size(value, 3), axis=0)
        operator.native.inputs[port] = write.op("Reshape", wide, sizes, label="expanded")
