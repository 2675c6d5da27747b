"""Find where a model rounds activations to integers."""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.ir.graph import Graph, Node, Use
from graphpass.ir.operators import MOVES, SLICES, SOURCES

#: Keep elements between a DequantizeLinear and an output: a cache is one by its Concat.
_KEPT = MOVES | SLICES | {"Concat"}


def rounds_activations(graph: Graph) -> bool:
    """Return whether activations are rounded to integers, by constant scales or by their own."""
    return any(graph.of_op("DynamicQuantizeLinear", "QuantizeLinear"))


def quantized_ports(graph: Graph) -> Iterator[tuple[Node, tuple[Use, ...]]]:
    """Yield each QuantizeLinear that reads an input, and each DequantizeLinear that an output reads.

    Elements may be moved or sliced between. With each node come the uses between it and the port: the read of a
    QuantizeLinear, and the uses of a DequantizeLinear that lead to an output.
    """
    for node in graph.of_op("QuantizeLinear"):
        if graph.producer(graph.look_through(node.source(), _KEPT)).op in SOURCES:
            yield node, (Use(node, 0),)
    for node in graph.of_op("DequantizeLinear"):
        if graph.producer(node.source()).op == "Constant":
            continue
        if uses := tuple(use for use in graph.uses(node.outputs[0]) if _leads_to_output(graph, use)):
            yield node, uses


def _leads_to_output(graph: Graph, use: Use) -> bool:
    if use.node.op not in _KEPT:
        return use.node.op == "Result"
    uses = graph.forward(use.node.outputs, lambda use: use.node.outputs if use.node.op in _KEPT else ())
    return any(use.node.op == "Result" for use in uses)
