"""Detection of values that NPUW transposes, and of reads of their length.

Source: ``npuw_transformations/optimize_value_tensors.cpp`` of OpenVINO, as in the libraries of 2026.4.1.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.analysis.caches.past import length_reads, past_of
from graphpass.ir.graph import Graph, Node, Use, Value

#: Producers of new values that NPUW can rewrite to transposed ones: Transpose, or Reshape with one kv head.
_PRODUCERS = frozenset({"Reshape", "Transpose"})

_REPEATS = ("Unsqueeze", "Broadcast", "Reshape")

#: Operators that read values, with the port of the values.
_ATTENDS = {"ScaledDotProductAttention": 2, "MatMul": 1}


def is_transposed(graph: Graph, read: Node) -> bool:
    """Return whether NPUW transposes the values of a cache.

    Args:
        graph: The graph of ``read``.
        read: The ReadValue of a cache of values, ``[batch, heads, sequence, head_dim]``.
    """
    return any(
        graph.producer(joined.source(1)).op in _PRODUCERS and _is_attended(graph, joined.outputs[0])
        for joined in _joined(graph, read)
    )


def reordered(graph: Graph, read: Node) -> Iterator[Node]:
    """Yield Transposes of new values whose order is not [0, 2, 1, 3].

    Args:
        graph: The graph of ``read``.
        read: See `is_transposed`.
    """
    for joined in _joined(graph, read):
        node = graph.producer(joined.source(1))
        if node.op == "Transpose" and node.attributes.get("order") != (0, 2, 1, 3):
            yield node


def _joined(graph: Graph, read: Node) -> list[Node]:
    uses = graph.uses(past_of(graph, read))
    return [use.node for use in uses if use.node.op == "Concat" and use.port == 0 and len(use.node.inputs) == 2]


def _is_attended(graph: Graph, value: Value) -> bool:
    read = [value, *(node.outputs[0] for node in _repeats(graph, value)[-1])]
    return any(_ATTENDS.get(use.node.op) == use.port for value in read for use in graph.uses(value))


def _repeats(graph: Graph, value: Value) -> list[list[Node]]:
    steps, values = [], [value]
    for kind in _REPEATS:
        steps.append([use.node for value in values for use in graph.uses(value) if use.node.op == kind])
        values = [node.outputs[0] for node in steps[-1]]
    return steps


def misreads(graph: Graph, read: Node) -> Iterator[Use]:
    """Yield the `length_reads` that read a wrong size after NPUW transposes the values, if `is_transposed`.

    NPUW rewrites the target shapes of copied kv heads, so reads that only affect those of this value are correct.

    Args:
        graph: The graph of ``read``.
        read: See `is_transposed`.
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
    """Return whether results of ``node`` reach other ends than shapes of ``sized``."""

    def is_size(use: Use) -> bool:
        return use.port == 1 and use.node.index in sized

    reached = graph.forward(node.outputs, lambda use: () if is_size(use) else use.node.outputs)
    ends = [node, *(use.node for use in reached if not is_size(use))]
    return any(not any(graph.uses(output) for output in end.outputs) for end in ends)
