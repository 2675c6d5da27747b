"""Find the two products of attention around a Softmax."""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import ARITHMETIC, EXTREMA, KEEPS_ORDER, SLICES, SPLITS
from graphpass.ir.values import is_activation

__all__ = ["broadcast_to_itself", "is_attention", "score_products", "weighing_product"]

#: Lie between the product of query and key and the Softmax. A Slice cuts scores of a cache of fixed capacity to the
#: positions in use.
_SCORES = ARITHMETIC | EXTREMA | KEEPS_ORDER | {"Concat", "Select", "Slice", "Tanh"}

#: Lie between the Softmax and the product with the value: drop a sink's column, guard, pad to a cache's capacity.
_PROBABILITIES = _SCORES | SLICES | SPLITS | {"Dropout", "IsNaN", "Pad"}


def is_attention(graph: Graph, softmax: Node) -> bool:
    """Return whether ``softmax`` stands between a product of two activations and a product with an activation."""
    return any(True for _ in score_products(graph, softmax.source())) and weighing_product(graph, softmax) is not None


def score_products(graph: Graph, value: Value) -> Iterator[Node]:
    """Yield the products of two activations that ``value`` is computed from by arithmetic on scores."""
    for node in graph.backward([value], _scores):
        if node.op == "MatMul" and all(is_activation(graph, operand) for operand in node.inputs):
            yield node


def _scores(node: Node) -> tuple[Value | None, ...]:
    if (same := broadcast_to_itself(node)) is not None:
        return (same,)
    if node.op not in _SCORES:
        return ()
    return node.inputs[:1] if node.op == "Slice" else node.inputs[1:] if node.op == "Select" else node.inputs


def broadcast_to_itself(node: Node) -> Value | None:
    """Return the input of a Broadcast to no more than it is: OpenVINO makes that of adding zeros.

    Unknown dimensions of scores need no proof: other products fit only if they are the same.
    """
    # A third input names the new axes.
    if node.op != "Broadcast" or len(node.inputs) != 2 or (source := node.inputs[0]) is None:
        return None
    before, after = source.shape, node.outputs[0].shape
    if before is None or after is None or len(before) != len(after):
        return None
    grows = any(old == 1 and new != 1 for old, new in zip(before, after, strict=True))
    return None if grows else source


def weighing_product(graph: Graph, softmax: Node) -> Node | None:
    """Return the product of the probabilities of ``softmax`` with an activation, the value."""
    uses = graph.forward(softmax.outputs, lambda use: use.node.outputs if use.node.op in _PROBABILITIES else ())
    return next(
        (
            use.node
            for use in uses
            if use.node.op == "MatMul" and use.port == 0 and is_activation(graph, use.node.inputs[1])
        ),
        None,
    )
