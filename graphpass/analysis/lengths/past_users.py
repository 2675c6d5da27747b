"""Find what depends on the number of past entries."""

from __future__ import annotations

import itertools

from graphpass.analysis.attention.mask import BATCH, LENGTH
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Elements, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import SHAPE_READERS, SLICES
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
        follows = any(value.node in indices and value.node not in stops for value in node.sources)
        if follows and not (sizes_new_tokens(elements, node) or _keeps_new(elements, node)):
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


def _keeps_new(elements: Elements, node: Node) -> bool:
    """Return whether ``node`` counts new tokens after the past, or keeps their entries alone."""
    if node.op not in SLICES | {"Range"}:
        return False
    result = node.outputs[0]
    try:
        if node.op == "Range":
            return elements.shape(result) == (LENGTH,)
        before, after, starts = (elements.shape(value) for value in (node.source(), result, node.source(1)))
    except UnknownError:
        return False
    changed = [(old, new) for old, new in zip(before, after, strict=False) if old is not new]
    if len(changed) != 1 or changed[0][1] is not LENGTH or starts not in {(), (ONE,)}:
        return False
    start = elements.of(node.source(1), (ZERO,) * len(starts))
    return start in {ex.negative(LENGTH), ex.subtract(changed[0][0], LENGTH)}
