"""Operators that hold a state inside: which input is the state of before, which output is the state of after."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.ir.cache import Axes, CacheKind, CacheRole
from graphpass.ir.graph import Node, Value

__all__ = ["INNER_CACHES", "STATE_OPERATORS", "InnerState", "inner_state"]

_KV = Axes(batch=0, heads=1, sequence=2, head_dim=3)

#: One tensor for both: [2, batch, heads, sequence, head_dim].
_PACKED = Axes(batch=1, heads=2, sequence=3, head_dim=4)

_BATCH_FIRST, _BATCH_SECOND = Axes(batch=0), Axes(batch=1)


@dataclass(frozen=True, slots=True)
class InnerState:
    """One state of an operator.

    Attributes:
        past: Which input holds it before.
        present: Which output holds it after.
        kind: What kind of cache it is.
        role: What for; ``unknown`` where keys and values are in one tensor.
        axes: Where its axes stand.
        update: What the operator does to it, in words.
    """

    past: int
    present: int
    kind: CacheKind
    role: CacheRole
    axes: Axes
    update: str = "appended inside"


def _keys_and_values(key: int, value: int) -> tuple[InnerState, ...]:
    return InnerState(key, 1, "kv", "key", _KV), InnerState(value, 2, "kv", "value", _KV)


def _packed(past: int) -> tuple[InnerState, ...]:
    return (InnerState(past, 1, "kv", "unknown", _PACKED, "keys and values in one tensor, both appended inside"),)


def _recurrent(axes: Axes, *ports: tuple[int, int]) -> tuple[InnerState, ...]:
    words = "an ordinary recurrent network's state, replaced by"
    return tuple(InnerState(past, present, "other", "recurrent", axes, words) for past, present in ports)


#: Operators that compute attention over caches of their own; operators of com.microsoft that share their name with an
#: ONNX operator carry their domain.
_ATTENTION: dict[str, tuple[InnerState, ...]] = {
    "GroupQueryAttention": _keys_and_values(3, 4),
    "SparseAttention": _keys_and_values(3, 4),
    "MultiHeadAttention": _keys_and_values(6, 7),
    "DecoderMaskedMultiHeadAttention": _keys_and_values(5, 6),
    "Attention": _keys_and_values(4, 5),
    "com.microsoft.Attention": _packed(4),
    "DecoderMaskedSelfAttention": _packed(4),
    "QAttention": _packed(8),
}

#: All operators with a state inside.
STATE_OPERATORS: dict[str, tuple[InnerState, ...]] = _ATTENTION | {
    "LinearAttention": (InnerState(3, 1, "linear", "recurrent", _BATCH_FIRST, "updated inside"),),
    "CausalConvWithState": (InnerState(3, 1, "linear", "conv", _BATCH_FIRST, "new columns are shifted in inside"),),
    "LSTM": _recurrent(_BATCH_SECOND, (5, 1), (6, 2)),
    "GRU": _recurrent(_BATCH_SECOND, (5, 1)),
    "RNN": _recurrent(_BATCH_SECOND, (5, 1)),
    "LSTMCell": _recurrent(_BATCH_FIRST, (1, 0), (2, 1)),
    "GRUCell": _recurrent(_BATCH_FIRST, (1, 0)),
    "RNNCell": _recurrent(_BATCH_FIRST, (1, 0)),
    "LSTMSequence": _recurrent(_BATCH_FIRST, (1, 1), (2, 2)),
    "GRUSequence": _recurrent(_BATCH_FIRST, (1, 1)),
    "RNNSequence": _recurrent(_BATCH_FIRST, (1, 1)),
}

#: Operators with keys and values inside: (past input, present output) of each cache.
INNER_CACHES: dict[str, tuple[tuple[int, int], ...]] = {
    op: tuple((state.past, state.present) for state in states) for op, states in _ATTENTION.items()
}


def inner_state(node: Node, past: Value | None = None, present: Value | None = None) -> InnerState | None:
    """The state of ``node`` that it reads as ``past`` and gives back as ``present``; either may be left open."""
    for state in STATE_OPERATORS.get(node.op, ()):
        reads = state.past < len(node.inputs) and node.inputs[state.past] == past
        gives = state.present < len(node.outputs) and node.outputs[state.present] == present
        if (past is None or reads) and (present is None or gives):
            return state
    return None
