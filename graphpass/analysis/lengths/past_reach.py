"""What an inference's past reaches: what holds something for each past entry, and numbers that tell how many."""

from __future__ import annotations

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.slices import NO_END, SLICES
from graphpass.ir.values import KEEPS_ORDER, one_number

__all__ = ["reached", "uses_length"]


def uses_length(graph: Graph, value: Value, lengths: set[int], stops: set[int]) -> bool:
    """Whether ``value`` is computed from a size of one of ``lengths``, other than through ``stops``."""
    for node in graph.backward(
        [value], lambda node: () if node.op == "ShapeOf" or node.index in stops else node.inputs
    ):
        if node.op == "ShapeOf" and node.inputs[0] is not None and node.inputs[0].node in lengths:
            return True
    return False


def reached(graph: Graph, sources: set[int], stops: set[int]) -> set[int]:
    """The nodes that ``sources`` reach, but for ``stops`` and what is behind them.

    What has an element for each new token, and none for others, ends the way, too.
    """
    found = set(sources)
    for node in graph.nodes:
        follows = any(value is not None and value.node in found and value.node not in stops for value in node.inputs)
        if follows and not _counts_on(graph, node, found) and not _takes_new(graph, node, found):
            found.add(node.index)
    return found - stops


def _counts_on(graph: Graph, node: Node, reached: set[int]) -> bool:
    """Whether ``node`` counts on from a length, as many steps as the past does not tell."""
    if node.op != "Range":
        return False
    start, stop = (_laid_out(graph, value) for value in node.inputs[:2])
    end = graph.producer(stop)
    if end.op != "Add" or one_number(graph, node.inputs[2]) != 1:
        return False
    one, two = (_laid_out(graph, value) for value in end.inputs)
    return (one == start and two.node not in reached) or (two == start and one.node not in reached)


def _takes_new(graph: Graph, node: Node, reached: set[int]) -> bool:
    """Whether ``node`` takes the last ones along one axis, as many as there are new tokens."""
    if node.op != "Slice" or len(node.attributes.get("axes") or ()) != 1:
        return False
    start = graph.producer(_laid_out(graph, node.inputs[1]))
    stop = one_number(graph, node.inputs[2])
    if start.op not in {"Multiply", "Negative"} or stop is None or stop < NO_END:
        return False
    factors = [_laid_out(graph, value) for value in start.inputs]
    counts = [value for value in factors if one_number(graph, value) != -1]
    if len(counts) != 1 or len(factors) - len(counts) != (start.op == "Multiply"):
        return False
    size = graph.producer(counts[0])
    return counts[0].node not in reached and size.op in SLICES | {"Gather", "ShapeOf"}


def _laid_out(graph: Graph, value: Value | None) -> Value:
    """Where the numbers of ``value`` come from, in whatever shape."""
    assert value is not None
    node = graph.producer(value)
    while node.op in KEEPS_ORDER and node.inputs[0] is not None:
        value = node.inputs[0]
        node = graph.producer(value)
    return value
