"""Find quantization of activations."""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.ir.bodies import inlined
from graphpass.ir.graph import Graph, Node, Use
from graphpass.ir.model import Model
from graphpass.ir.operators import MOVES, QUANTIZERS, SLICES, SOURCES

#: Keep elements between a DequantizeLinear and an output; Concat appends to a cache.
_KEPT = MOVES | SLICES | {"Concat"}


#: Advice on a quantizer between operators that runtimes fuse.
_ADVICE = "quantize the model without the operands and the result of attention's products"


def why_not_fused(node: Node, otherwise: str) -> str:
    """Return the reason that an operator inside attention prevents its fusion.

    Args:
        node: The operator.
        otherwise: The reason if it is not a quantizer.
    """
    return f"{node.op} rounds to integers; {_ADVICE}" if node.op in QUANTIZERS else otherwise


def rounds_activations(model: Model) -> bool:
    """Return whether activations are rounded to integers, with constant or dynamic scales, also in bodies."""
    return any(inlined(model).graph.of_op("DynamicQuantizeLinear", "FakeQuantize", "QuantizeLinear"))


def quantized_ports(graph: Graph) -> Iterator[tuple[Node, tuple[Use, ...]]]:
    """Yield each QuantizeLinear of an input, and each DequantizeLinear of an output.

    Operators in between may move or slice elements. Each node is yielded with uses between it and the port: for a
    QuantizeLinear its own input, for a DequantizeLinear the uses that lead to an output.
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
