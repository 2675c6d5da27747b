"""Find values that NPUW keeps transposed, and reads of their length that it leaves.

Source, of openvino: ``npuw_transformations/optimize_value_tensors.cpp``, as in the 2026.4.1 libraries.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.analysis.caches.past import length_reads, past_of
from graphpass.ir.graph import Graph, Node, Use, Value

#: Producers of new values that NPUW can make transposed: a Transpose, or a Reshape if there is one head of values.
_PRODUCERS = frozenset({"Reshape", "Transpose"})

_REPEATS = ("Unsqueeze", "Broadcast", "Reshape")

#: Readers of values, which are the second operand of a product.
_ATTENDS = {"ScaledDotProductAttention": 2, "MatMul": 1}


def is_transposed(graph: Graph, read: Node) -> bool:
    """Return whether NPUW transposes the value whose past ``read`` gives."""
    return any(
        graph.producer(joined.source(1)).op in _PRODUCERS and _is_attended(graph, joined.outputs[0])
        for joined in _joined(graph, read)
    )


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
    """Yield `length_reads` that NPUW leaves with another size than they ask for, if `is_transposed`.

    NPUW rewrites the sizes that values are repeated to: a read that reaches only those of this value does no harm.
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
    """Return whether results of ``node`` end elsewhere than in sizes of ``sized``."""

    def is_size(use: Use) -> bool:
        return use.port == 1 and use.node.index in sized

    reached = graph.forward(node.outputs, lambda use: () if is_size(use) else use.node.outputs)
    ends = [node, *(use.node for use in reached if not is_size(use))]
    return any(not any(graph.uses(output) for output in end.outputs) for end in ends)
