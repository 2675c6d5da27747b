"""Find what depends on the number of past entries."""

from __future__ import annotations

import itertools

from graphpass.analysis.attention.mask import BATCH, LENGTH
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Elements
from graphpass.analysis.symbolic.folding import fold_cuts, fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import KEEPS_ORDER, SHAPE_READERS, SLICES
from graphpass.ir.values import INTEGERS

#: Most whole numbers of a tensor that may be a shape.
_FEW = 8


def uses_length(graph: Graph, value: Value, lengths: set[int], stops: set[int]) -> bool:
    """Return whether a size of ``lengths`` reaches ``value`` on ways without ``stops``."""
    upstream = graph.backward(
        [value], lambda node: () if node.op in SHAPE_READERS or node.index in stops else node.inputs
    )
    return any(node.op in SHAPE_READERS and node.source().node in lengths for node in upstream)


def reached(elements: Elements, sources: set[int], stops: set[int]) -> set[int]:
    """Return the nodes that ``sources`` reach, up to ``stops`` and nodes of new tokens alone."""
    graph, indices = elements.graph, set(sources)
    for node in graph.nodes:
        follows = any(value is not None and value.node in indices and value.node not in stops for value in node.inputs)
        if follows and not (
            sizes_new_tokens(elements, node) or _counts_on(graph, node, indices) or _takes_new(graph, node, indices)
        ):
            indices.add(node.index)
    return indices - stops


def sizes_new_tokens(elements: Elements, node: Node) -> bool:
    """Return whether results are sizes that the batch and the new tokens determine."""
    return len(node.outputs) > 0 and all(_is_of_new_tokens(elements, value) for value in node.outputs)


def _is_of_new_tokens(elements: Elements, value: Value) -> bool:
    shape = value.shape
    if shape is None or len(shape) > 1 or value.element_type not in INTEGERS:
        return False
    places = [range(size) if isinstance(size, int) and size <= _FEW else () for size in shape]
    if not all(places):
        return False
    numbers = [elements.of(value, tuple(map(ex.number, place))) for place in itertools.product(*places)]
    return all(
        part.op not in {"opaque", "read"} and (part.op != "length" or part in {BATCH, LENGTH})
        for part in ex.walk(*numbers)
    )


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
