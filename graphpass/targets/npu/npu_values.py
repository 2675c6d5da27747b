"""Values, which NPUW keeps transposed where it can, and who asks them how long the past is: there that is another axis.

Rules, of openvino: ``npuw_transformations/optimize_value_tensors.cpp``, as in the 2026.4.1 libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.targets.consumers.npuw import gather_by_beams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphpass.ir.graph import Graph, Node, Use, Value

__all__ = ["asked_axes", "is_transposed", "length_reads", "misreads", "past_of"]

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
    return any(
        graph.producer(joined.inputs[1]).op in _MAKES and _is_attended(graph, joined.outputs[0])
        for joined in _joined(graph, read)
        if joined.inputs[1] is not None
    )


def _joined(graph: Graph, read: Node) -> list[Node]:
    """The Concats of the past that ``read`` gives and of new positions."""
    uses = graph.uses(past_of(graph, read))
    return [use.node for use in uses if use.node.op == "Concat" and use.port == 0 and len(use.node.inputs) == 2]


def _is_attended(graph: Graph, value: Value) -> bool:
    """Whether attention reads ``value``, as it is or repeated for the heads of the query."""
    read = [value, *(node.outputs[0] for node in _repeats(graph, value)[-1])]
    return any(_ATTENDS.get(use.node.op) == use.port for one in read for use in graph.uses(one))


def _repeats(graph: Graph, value: Value) -> list[list[Node]]:
    """What repeats ``value`` for the heads of the query, of each of `_REPEATS`."""
    steps, values = [], [value]
    for kind in _REPEATS:
        steps.append([use.node for one in values for use in graph.uses(one) if use.node.op == kind])
        values = [node.outputs[0] for node in steps[-1]]
    return steps


def misreads(graph: Graph, read: Node) -> Iterator[Use]:
    """Of `length_reads` those that NPUW leaves with another size than they ask for, where `is_transposed`.

    The sizes that values are repeated to NPUW writes anew: what reaches nothing but those of this one does no harm.
    """
    own = {
        node.index
        for joined in _joined(graph, read)
        for step in _repeats(graph, joined.outputs[0])[1:]
        for node in step
    }
    for use in length_reads(graph, read):
        if _reaches_more(graph, use.node, own):
            yield use


def _reaches_more(graph: Graph, node: Node, sized: set[int]) -> bool:
    """Whether what ``node`` gives ends anywhere but in the sizes that the nodes ``sized`` are told."""
    pending, seen = [node], set()
    while pending:
        node = pending.pop()
        if node.index in seen:
            continue
        seen.add(node.index)
        uses = [use for output in node.outputs for use in graph.uses(output)]
        if not uses:
            return True
        pending += [use.node for use in uses if use.port != 1 or use.node.index not in sized]
    return False


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
