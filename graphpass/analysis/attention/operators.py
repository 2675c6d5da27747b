"""Read attributes and inputs of fused attention operators.

`left_window_size` of ONNX's Attention excludes the query's own position (onnx.defs). `local_window_size` of
com.microsoft includes it, as observed on ONNX Runtime's CPU kernel.
"""

from __future__ import annotations

from typing import NamedTuple

from graphpass.analysis.attention.scales import Scaling, operand_factors, scaling_of
from graphpass.analysis.attention.types import OPERATORS
from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import INNER_CACHES
from graphpass.ir.values import fixed_size


class Heads(NamedTuple):
    """Numbers and sizes of heads: fields of `graphpass.ir.cache.AttentionBlock`."""

    heads: int | None = None
    key_heads: int | None = None
    head_dim: int | None = None
    value_head_dim: int | None = None


#: Input indices of past keys and past values, of operators with separate inputs for both.
_PASTS = {op: (ports[0][0], ports[1][0]) for op, ports in INNER_CACHES.items() if len(ports) == 2}

#: Attributes with the number of query heads, and of kv heads.
_HEADS, _KEY_HEADS = ("num_heads", "q_num_heads"), ("kv_num_heads",)


def _number(node: Node, names: tuple[str, ...]) -> int | None:
    return next((int(node.attributes[name]) for name in names if node.attributes.get(name)), None)


def operator_heads(node: Node) -> Heads:
    """Return the numbers and sizes of heads that attributes and shapes determine."""
    heads, key_heads = _number(node, _HEADS), _number(node, _KEY_HEADS)
    if not OPERATORS[node.op].operands:
        return _of_weights(node, heads)
    query, key, value = (node.input(port) for port in range(3))
    heads = heads or _size(query, 1, rank=4)
    if key is None and value is None and query is not None and query.rank == 3:
        # GroupQueryAttention with query, keys and values in one tensor.
        whole = (heads or 0) + 2 * (key_heads or 0)
        size = _divided(_size(query, 2, rank=3), whole if heads and key_heads else None)
        return Heads(heads, key_heads, size, size)
    if key_heads is None:
        key_heads = heads if node.op.endswith("MultiHeadAttention") else _size(key, 1, rank=4)
    past_key, past_value = (node.input(port) for port in _PASTS[node.op]) if node.op in _PASTS else (None, None)
    head_dim = _head_size(query, heads) or _head_size(key, key_heads) or _head_size(past_key, None)
    value_head_dim = _head_size(value, key_heads) or _head_size(past_value, None)
    # A tensor of rank 5 packs keys and values, or query, keys and values.
    return Heads(heads, key_heads, head_dim, value_head_dim or (head_dim if value is None else None))


def _of_weights(node: Node, heads: int | None) -> Heads:
    """Return the heads of operators that compute query, key and value from weights."""
    sizes = node.attributes.get("qkv_hidden_sizes")
    if sizes:
        return Heads(heads, heads, _divided(int(sizes[0]), heads), _divided(int(sizes[2]), heads))
    size = _divided(_size(node.input(1), 1, rank=2), 3 * heads if heads else None)
    return Heads(heads, heads, size, size)


def _head_size(value: Value | None, heads: int | None) -> int | None:
    return _divided(fixed_size(value, 2), heads) if value is not None and value.rank == 3 else fixed_size(value, -1)


def _size(value: Value | None, axis: int, rank: int) -> int | None:
    return fixed_size(value, axis) if value is not None and value.rank == rank else None


def _divided(size: int | None, heads: int | None) -> int | None:
    return size // heads if size is not None and heads and size % heads == 0 else None


def operator_scaling(graph: Graph, node: Node, head_dim: int | None) -> Scaling:
    """Return the operator's scale or its default, multiplied by factors of query and key.

    In decomposed attention, the search for factors ends at the Concat of the cache and at the rotary embedding as well.

    Args:
        graph: The graph.
        node: A fused operator. Factors of the key are ignored if it has past inputs, because they apply to the content
            of the cache. Factors before its own rotary embedding are ignored.
        head_dim: Size of a head of keys, for the default scale ``head_dim ** -0.5``; ``None`` if unknown.
    """
    scale: float | None = node.attributes.get("scale") or None
    is_given = scale is not None
    if node.op == "ScaledDotProductAttention" and (value := node.input(4)) is not None:
        scale, is_given = fold_scalar(graph, value), True
    if not is_given and head_dim is not None:
        scale = head_dim**-0.5
    has_past = any(node.input(port) is not None for port in _PASTS.get(node.op, ()))
    shown = () if node.attributes.get("do_rotary") else OPERATORS[node.op].operands[: 1 if has_past else 2]
    before = [factor for port in shown for factor in operand_factors(graph, node.input(port))]
    return scaling_of([*before, scale], float(node.attributes.get("softcap") or 0) or None)


def operator_window(node: Node) -> int | None:
    """Return the window set by attributes, the query's own position included; ``None`` without a window."""
    local, left = (int(node.attributes.get(name, -1)) for name in ("local_window_size", "left_window_size"))
    return local if local > 0 else left + 1 if left >= 0 else None


def operator_sinks(node: Node) -> bool:
    """Return whether the softmax of an operator includes an attention sink."""
    port = OPERATORS[node.op].sink
    value = node.input(port) if port is not None else None
    if value is not None and node.op == "ScaledDotProductAttention" and value.shape is not None and 0 in value.shape:
        return False
    return value is not None or bool(node.attributes.get("smooth_softmax", 0) > 0)
