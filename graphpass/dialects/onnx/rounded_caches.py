"""Convert caches of GroupQueryAttention to integers, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewriter import OnnxRewriter
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.values import fixed_size, is_value_preserving

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

#: Inputs for past and scale, and the output for the present: keys, then values.
_PORTS = ((3, 12, 1), (4, 13, 2))

_STORED = {8: "i8", 4: "u8"}

Scales = tuple["NDArray[numpy.float32]", "NDArray[numpy.float32]"]
"""Scales of keys and of values, f32 ``[1, heads, 1, head_dim]``."""


def round_caches(model: OnnxModel, scales: Mapping[str, Scales], bits: int) -> None:
    """Convert caches to integers of ``bits`` bits.

    Args:
        model: A model in which the pasts of these nodes are inputs without further users.
        scales: Scales by name of the GroupQueryAttention.
        bits: 8, or 4 with two values per byte.
    """
    rewriter = model.rewriter()
    for node in [node for node in rewriter.graph.of_op("GroupQueryAttention") if node.name in scales]:
        write = rewriter.under(node.name)
        attributes = rewriter.node(node).attrs
        attributes |= {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": bits}
        for (_, port, _), scale, label in zip(_PORTS, scales[node.name], ("key_scale", "value_scale"), strict=True):
            rewriter.set_input(node, port, write.constant(scale, label))
            size = scale.shape[-1] * bits // 8
            _declare(rewriter, node, port, _STORED[bits], size)
    rewriter.finish()


def dequantize_caches(model: OnnxModel) -> None:
    """Convert all caches of GroupQueryAttention back to the query's type; undoes `round_caches`."""
    rewriter = model.rewriter()
    for node in rewriter.graph.of_op("GroupQueryAttention"):
        native = rewriter.node(node)
        if "k_quant_type" not in native.attrs:
            continue
        for name in ("k_quant_type", "v_quant_type", "kv_cache_bit_width"):
            native.attrs.pop(name, None)
        query = node.source()
        heads = node.attributes["num_heads"], 2 * node.attributes["kv_num_heads"]
        size = fixed_size(query, -1)
        head_dim = None if size is None else size // (heads[0] if node.input(1) is not None else sum(heads))
        for _, port, _ in _PORTS:
            _declare(rewriter, node, port, query.element_type, head_dim)
            rewriter.set_input(node, port, None)
        while native.inputs and not native.inputs[-1].name:
            native.inputs.pop()
    rewriter.finish()


def _declare(rewriter: OnnxRewriter, node: Node, port: int, element_type: str, size: int | None) -> None:
    """Declare type and last dimension of the past and the present with the scale ``port``."""
    past, _, present = next(ports for ports in _PORTS if ports[1] == port)
    graph, made = rewriter.graph, node.outputs[present]
    results = _results(graph, made)
    for result in results:
        if result.source() != made:
            rewriter.redirect(result, 0, made)
    value = node.source(past)
    rewriter.declare_type(made, element_type)
    # A Gather may be in between, inserted by `insert-reorder`.
    while (source := graph.producer(value)).op != "Parameter":
        rewriter.declare_type(value, element_type)
        value = source.source()
    for port_node in (source, *results):
        rewriter.declare_type(port_node, element_type)
        rewriter.resize_port(port_node, [None, None, None, size])


def _results(graph: Graph, made: Value) -> list[Node]:
    """Return the outputs of the model that equal ``made``, possibly converted (gptj)."""
    results, pending = [], [made]
    while pending:
        for use in graph.uses(pending.pop()):
            if use.node.op == "Result":
                results.append(use.node)
            elif is_value_preserving(use.node):
                pending.append(use.node.outputs[0])
    return results
