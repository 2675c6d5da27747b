"""The pass `separate-past`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import MASKED, REALS, fixed_size
from graphpass.ir.writer import Handle, Writer
from graphpass.passes.attention.step_builder import StepBuilder

_QUERY, _KEY, _VALUE, _MASK, _PAST_KEY, _PAST_VALUE, _LENGTHS = range(7)


@dataclass(frozen=True)
class SeparatePast(Pass[OnnxModel]):
    """Append new keys and values by Concat instead of inside ONNX's Attention.

    `fuse-group-query-attention` requires a past to which a Concat appends. ONNX Runtime's Attention (1.32) copies its
    past at each step; GroupQueryAttention appends in place.

    Shapes:
        query ``[batch, length, heads * head_dim]`` or with heads as an axis; past ``[batch, heads, past, head_dim]``

    Before:
        result, present_key, present_value = Attention(query, key, value, mask, past_key, past_value)
    After:
        present_key = Concat(past_key, key); result = Attention(query, present_key, present_value, mask and causal)
    """

    name = "separate-past"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done:
        nodes, caches = list(with_past(model.graph)), analyze_caches(model).of_kind("kv")
        if not nodes or not caches:
            return Done()
        rewriter = model.rewriter()
        step = StepBuilder(model, rewriter)
        for node in nodes:
            _separate(rewriter, node, step.causal if node.attributes.get("is_causal") else None)
        rewriter.finish()
        return Done({"pasts separated": len(nodes)})


def with_past(graph: Graph) -> Iterator[Node]:
    """Yield nodes of ONNX's Attention with past inputs that this pass can rewrite."""
    for node in graph.of_op("Attention"):
        has_past = node.input(_PAST_KEY) is not None and node.input(_PAST_VALUE) is not None
        is_plain = node.input(_LENGTHS) is None and len(node.outputs) == 3
        if has_past and is_plain and all(_heads(node, port) is not None for port in (_QUERY, _KEY, _VALUE)):
            yield node


def _heads(node: Node, port: int) -> int | None:
    """Return the number of heads in the last axis; 0 if heads are an axis."""
    rank = node.source(port).rank
    if rank == 4:
        return 0
    heads = node.attributes.get("q_num_heads" if port == _QUERY else "kv_num_heads")
    return heads if rank == 3 and heads else None


def _by_head(rewriter: Rewriter, write: Writer, node: Node, port: int) -> Handle:
    heads, value = _heads(node, port), node.source(port)
    if not heads:
        return rewriter.handle(value)
    size = (fixed_size(value, 2) or 0) // heads or -1
    return write.op("Transpose", write.op("Reshape", value, [0, 0, heads, size]), order=[0, 2, 1, 3])


def _mask(write: Writer, node: Node, causal: Handle | None) -> Value | Handle | None:
    mask = node.input(_MASK)
    if mask is None or causal is None:
        return causal if mask is None else mask
    if mask.element_type not in REALS:
        return write.op("LogicalAnd", mask, causal, label="mask")
    return write.op("Select", causal, mask, write.number(MASKED, mask.element_type), label="mask")


def _separate(rewriter: Rewriter, node: Node, causal: Handle | None) -> None:
    write = rewriter.under(node.name)
    query, key, value = (_by_head(rewriter, write, node, port) for port in (_QUERY, _KEY, _VALUE))
    keys, values = (
        write.op("Concat", node.source(past), new, axis=2, label=label)
        for past, new, label in ((_PAST_KEY, key, "keys"), (_PAST_VALUE, value, "values"))
    )
    attributes = {name: node.attributes[name] for name in ("scale", "softcap") if node.attributes.get(name)}
    mask = _mask(write, node, causal)
    operands = [query, keys, values, *([] if mask is None else [mask])]
    (result,) = write.outputs("Attention", *operands, count=1, label="attention", **attributes)
    if node.outputs[0].rank == 3:
        rows = write.op("Transpose", result, order=[0, 2, 1, 3], label="rows")
        result = write.op("Reshape", rows, [0, 0, -1], label="result")
    for old, new in zip(node.outputs, (result, keys, values), strict=True):
        rewriter.replace(old, new)
