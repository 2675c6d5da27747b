"""Values, which NPUW keeps transposed where it can, and who asks them how long the past is: there that is another axis.

Rules, of openvino: ``npuw_transformations/optimize_value_tensors.cpp``, as in the 2026.4.1 libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.views.npuw import gather_by_beams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphpass.graph import Graph, Node, Use, Value

__all__ = ["asked_axes", "is_transposed", "length_reads", "past_of"]

#: The axes that NPUW swaps.
_SWAPPED = {2, 3}

#: What makes the new values where NPUW can make them transposed: a Transpose, which is a Reshape where a model has one
#: head of values.
_MAKES = frozenset({"Reshape", "Transpose"})

#: What copies values for each head of the query, in order.
_REPEATS = ("Unsqueeze", "Broadcast", "Reshape")

#: What reads values; of a product they are the second operand.
_ATTENDS = {"ScaledDotProductAttention": 2, "MatMul": 1}


def past_of(graph: Graph, read: Node) -> Value:
    """The past that ReadValue ``read`` gives, ordered by beams where it is."""
    return (gather_by_beams(graph, read) or read).outputs[0]


def is_transposed(graph: Graph, read: Node) -> bool:
    """Whether NPUW transposes the value whose past ``read`` gives: behind its Concat lies nothing that hinders it."""
    for joined in graph.uses(past_of(graph, read)):
        if joined.node.op != "Concat" or joined.port != 0 or len(joined.node.inputs) != 2:
            continue
        new = joined.node.inputs[1]
        if new is not None and graph.producer(new).op in _MAKES and _is_attended(graph, joined.node.outputs[0]):
            return True
    return False


def _is_attended(graph: Graph, value: Value) -> bool:
    """Whether attention reads ``value``, as it is or repeated for the heads of the query."""
    repeated = [value]
    for kind in _REPEATS:
        repeated = [use.node.outputs[0] for one in repeated for use in graph.uses(one) if use.node.op == kind]
    return any(_ATTENDS.get(use.node.op) == use.port for one in (value, *repeated) for use in graph.uses(one))


def length_reads(graph: Graph, read: Node) -> Iterator[Use]:
    """Who asks what ``read`` gives, ``[batch, heads, sequence, head_dim]``, for one of the axes that NPUW swaps.

    Args:
        graph: What holds ``read``.
        read: The ReadValue of a key or value.

    Yields:
        The uses of the shape.
    """
    for past in dict.fromkeys((read.outputs[0], past_of(graph, read))):
        for shape in graph.uses(past):
            for use in graph.uses(shape.node.outputs[0]) if shape.node.op == "ShapeOf" else ():
                if asked_axes(graph, use) & _SWAPPED:
                    yield use


def asked_axes(graph: Graph, use: Use) -> set[int]:
    """Which entries of a shape of rank 4 ``use`` takes; all, where that cannot be told."""
    chosen = graph.constant(use.node.inputs[1]) if use.node.op == "Gather" and use.port == 0 else None
    return set(range(4)) if chosen is None else {int(axis) % 4 for axis in chosen.flat}
