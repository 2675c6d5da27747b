"""Whether a Softmax stands between the two products of attention."""

from __future__ import annotations

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.values import SAME_ELEMENTS, is_computed

__all__ = ["broadcast_to_itself", "is_attention", "is_product", "product_behind"]

_SCORE_OPS = (
    frozenset({"Maximum", "Add", "Subtract", "Multiply", "Divide", "Select", "Tanh", "Concat", "Reshape"})
    | SAME_ELEMENTS
)

#: Operators that may drop a column of the probabilities, guard them, or pad them to a cache's capacity.
_WEIGHT_OPS = _SCORE_OPS | {"IsNaN", "Pad", "Slice", "StridedSlice", "VariadicSplit", "Dropout"}


def is_attention(graph: Graph, softmax: Node) -> bool:
    """Whether ``softmax`` stands between a product of two computed tensors and a product with a computed tensor."""
    scores = softmax.inputs[0]
    return scores is not None and product_behind(graph, scores) and _product_ahead(graph, softmax.outputs[0])


def product_behind(graph: Graph, value: Value) -> bool:
    """Whether a product of two computed tensors is reached backwards through arithmetic on scores."""
    return any(is_product(graph, node) for node in graph.backward([value], _scores))


def is_product(graph: Graph, node: Node) -> bool:
    """Whether ``node`` multiplies two computed tensors."""
    return node.op == "MatMul" and all(is_computed(graph, operand) for operand in node.inputs)


def _scores(node: Node) -> tuple[Value | None, ...]:
    if node.op == "Slice":
        # Scores of a cache of fixed capacity are cut to the positions that there are.
        return node.inputs[:1]
    if (same := broadcast_to_itself(node)) is not None:
        return (same,)
    if node.op not in _SCORE_OPS:
        return ()
    return node.inputs[1:] if node.op == "Select" else node.inputs


def broadcast_to_itself(node: Node) -> Value | None:
    """What ``node`` broadcasts to no more than it is, where it does: OpenVINO makes that of adding zeros.

    Dimensions that are not known need no proof where this is of scores: other products fit only if they are the same.
    """
    # A third input says which axes are new.
    if node.op != "Broadcast" or len(node.inputs) != 2 or (source := node.inputs[0]) is None:
        return None
    before, after = source.shape, node.outputs[0].shape
    if before is None or after is None or len(before) != len(after):
        return None
    grows = any(old == 1 and new != 1 for old, new in zip(before, after, strict=True))
    return None if grows else source


def _product_ahead(graph: Graph, value: Value) -> bool:
    pending, seen = [value], set()
    while pending:
        for use in graph.uses(pending.pop()):
            if use.node.index in seen:
                continue
            seen.add(use.node.index)
            if use.node.op == "MatMul" and use.port == 0 and is_computed(graph, use.node.inputs[1]):
                return True
            if use.node.op in _WEIGHT_OPS:
                pending.extend(use.node.outputs)
    return False
