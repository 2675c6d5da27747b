"""Find what holds something for each past entry of a cache, and numbers that count these entries."""

from __future__ import annotations

from graphpass.ir.constants import fold_cuts, fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import KEEPS_ORDER, SHAPE_READERS, SLICES

__all__ = ["reached", "uses_length"]


def uses_length(graph: Graph, value: Value, lengths: set[int], stops: set[int]) -> bool:
    """Return whether ``value`` is computed from a size of one of ``lengths``, other than through ``stops``."""
    upstream = graph.backward(
        [value], lambda node: () if node.op in SHAPE_READERS or node.index in stops else node.inputs
    )
    return any(node.op in SHAPE_READERS and node.source().node in lengths for node in upstream)


def reached(graph: Graph, sources: set[int], stops: set[int]) -> set[int]:
    """Return the nodes that ``sources`` reach, without ``stops`` and what lies downstream of them.

    Nodes with an element for each new token, and none for others, end the way, too.
    """
    found = set(sources)
    for node in graph.nodes:
        follows = any(value is not None and value.node in found and value.node not in stops for value in node.inputs)
        if follows and not _counts_on(graph, node, found) and not _takes_new(graph, node, found):
            found.add(node.index)
    return found - stops


def _counts_on(graph: Graph, node: Node, reached: set[int]) -> bool:
    """Return whether ``node`` counts on from a length, as many steps as the past does not determine."""
    if node.op != "Range" or fold_scalar(graph, node.inputs[2]) != 1:
        return False
    start, stop = (graph.look_through(node.source(port), KEEPS_ORDER) for port in (0, 1))
    end = graph.producer(stop)
    if end.op != "Add":
        return False
    one, two = (graph.look_through(end.source(port), KEEPS_ORDER) for port in (0, 1))
    return (one == start and two.node not in reached) or (two == start and one.node not in reached)


def _takes_new(graph: Graph, node: Node, reached: set[int]) -> bool:
    """Return whether ``node`` takes the last ones along one axis, as many as there are new tokens."""
    cuts = fold_cuts(graph, node)
    if len(cuts) != 1 or not cuts[0].reaches_end:
        return False
    start = graph.producer(graph.look_through(node.source(1), KEEPS_ORDER))
    factors = [graph.look_through(value, KEEPS_ORDER) for value in start.inputs if value is not None]
    counts = [value for value in factors if fold_scalar(graph, value) != -1]
    negates = start.op == "Negative" or (start.op == "Multiply" and len(factors) == 2)
    if not negates or len(counts) != 1:
        return False
    return counts[0].node not in reached and graph.producer(counts[0]).op in SLICES | SHAPE_READERS | {"Gather"}
