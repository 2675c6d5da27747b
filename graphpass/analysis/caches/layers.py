"""Cut a decoder between its layers: at operators that all data of its tokens passes through.

A residual stream is such a place after each of its Adds; upstream of an addend there is none, because the stream
leads around it. Caches that are updated after different places are in different layers.
"""

from __future__ import annotations

from graphpass.analysis.caches.pairs import find_pairs
from graphpass.ir.graph import Graph, Node
from graphpass.ir.model import Model
from graphpass.ir.operators import NO_DATA, PRODUCTS

__all__ = ["regions"]


def regions(model: Model) -> dict[int, int]:
    """Return the last such place before each node that data of the tokens reaches, by index."""
    graph = model.graph
    written = {pair.write.index for pair in model.analysis(find_pairs) if pair.write is not None}
    results = [node.index for node in graph.of_op("Result") if node.index not in written]
    found: dict[int, int] = {}
    best = (0, 0)
    for node in graph.of_op("Parameter"):
        if (node.outputs[0].rank or 0) not in {2, 3}:
            continue
        dominators = _dominators(graph, node)
        places = max((_chain(dominators, end) for end in results if end in dominators), key=len, default=[])
        # Masks and positions come in after the first products with weights, or lead around the layers.
        merit = (sum(graph.nodes[index].op in PRODUCTS for index in dominators), len(places))
        if merit > best:
            best = merit
            found = _by_place(dominators, {place for place in places if _adds_up(graph.nodes[place], dominators)})
    return found


def _dominators(graph: Graph, start: Node) -> dict[int, int]:
    """Return the last node on every way from ``start`` to each node that it reaches.

    Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm. A graph without cycles needs one round, in order.
    """
    found, depths = {start.index: start.index}, {start.index: 0}
    for node in graph.nodes[start.index + 1 :]:
        before = {value.node for value in node.inputs if value is not None and value.node in found}
        if not before or node.op in NO_DATA:
            continue
        common, *others = before
        for other in others:
            while common != other:
                if depths[common] < depths[other]:
                    common, other = other, common
                common = found[common]
        found[node.index], depths[node.index] = common, depths[common] + 1
    return found


def _chain(dominators: dict[int, int], end: int) -> list[int]:
    places = [end]
    while dominators[places[-1]] != places[-1]:
        places.append(dominators[places[-1]])
    return places


def _adds_up(node: Node, dominators: dict[int, int]) -> bool:
    """Return whether ``node`` adds the result of a layer to what leads around it."""
    reached = [value for value in node.inputs if value is not None and value.node in dominators]
    return node.op in {"Add", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"} and len(reached) > 1


def _by_place(dominators: dict[int, int], places: set[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for node, before in dominators.items():
        found[node] = node if node in places or node == before else found[before]
    return found
