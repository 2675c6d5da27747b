"""Find what depends on the number of past entries."""

from __future__ import annotations

from graphpass.analysis.symbolic.folding import fold, fold_cuts, fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import KEEPS_ORDER, PICKS, SHAPE_READERS, SLICES


def uses_length(graph: Graph, value: Value, lengths: set[int], stops: set[int]) -> bool:
    """Return whether a size of ``lengths`` reaches ``value`` on ways without ``stops``."""
    upstream = graph.backward(
        [value], lambda node: () if node.op in SHAPE_READERS or node.index in stops else node.inputs
    )
    return any(node.op in SHAPE_READERS and node.source().node in lengths for node in upstream)


def reached(graph: Graph, sources: set[int], stops: set[int]) -> set[int]:
    """Return the nodes that ``sources`` reach, up to ``stops`` and nodes of new tokens alone."""
    indices = set(sources)
    for node in graph.nodes:
        follows = any(value is not None and value.node in indices and value.node not in stops for value in node.inputs)
        if follows and not (
            _is_fixed(graph, node) or _counts_on(graph, node, indices) or _takes_new(graph, node, indices)
        ):
            indices.add(node.index)
    return indices - stops


def _is_fixed(graph: Graph, node: Node) -> bool:
    """Return whether ``node`` picks numbers that the model fixes."""
    return node.op in PICKS and all(fold(graph, value) is not None for value in node.outputs)


def _counts_on(graph: Graph, node: Node, reached: set[int]) -> bool:
    """Return whether ``node`` counts on from a length by steps independent of the past."""
    if node.op != "Range" or fold_scalar(graph, node.inputs[2]) != 1:
        return False
    start, stop = (graph.look_through(node.source(port), KEEPS_ORDER) for port in (0, 1))
    end = graph.producer(stop)
    if end.op != "Add":
        return False
    first, second = (graph.look_through(end.source(port), KEEPS_ORDER) for port in (0, 1))
    return (first == start and second.node not in reached) or (second == start and first.node not in reached)


def _takes_new(graph: Graph, node: Node, reached: set[int]) -> bool:
    """Return whether ``node`` keeps as many last entries as there are new tokens."""
    cuts = fold_cuts(graph, node)
    if len(cuts) != 1 or not cuts[0].reaches_end:
        return _drops_past(graph, node, reached)
    start = graph.producer(graph.look_through(node.source(1), KEEPS_ORDER))
    factors = [graph.look_through(value, KEEPS_ORDER) for value in start.inputs if value is not None]
    counts = [value for value in factors if fold_scalar(graph, value) != -1]
    if start.op not in {"Negative", "Multiply"} or len(factors) > 2 or len(counts) != 1:
        return False
    return counts[0].node not in reached and graph.producer(counts[0]).op in SLICES | SHAPE_READERS | {"Gather"}


def _drops_past(graph: Graph, node: Node, reached: set[int]) -> bool:
    """Return whether ``node`` slices from ``total - new`` to ``total``, its source's size, as extend-mask-to-past."""
    if node.op != "Slice":
        return False
    start, stop = (graph.look_through(node.source(port), KEEPS_ORDER) for port in (1, 2))
    total = graph.producer(stop)
    sizes = graph.producer(total.source()) if total.op == "Gather" else total
    begin = graph.producer(start)
    if begin.op != "Subtract" or sizes.op != "ShapeOf" or sizes.source() != node.source():
        return False
    first, new = (graph.look_through(value, KEEPS_ORDER) for value in begin.inputs[:2] if value is not None)
    return first == stop and new.node not in reached
