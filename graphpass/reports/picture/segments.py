"""Division of a model into layers by dataflow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.ir.bodies import inlined
from graphpass.ir.graph import Graph, Node
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, LAYOUT, LOOP_ENTRIES, NO_DATA, PICKS

#: Segment of nodes upstream of the layers, or read by several layers.
BEFORE = -1

#: Operators that move the elements of a cache before the layer computes with them.
_ARRANGES = LAYOUT | PICKS | LOOP_ENTRIES


@dataclass(frozen=True, slots=True)
class Segments:
    """Assignment of the nodes of a graph to layers.

    Attributes:
        layers: Number of layers; 0 if no structure repeats.
        of_node: Layer of each node of ``graph``, by index; `BEFORE` for nodes upstream of the layers or read by
            several, ``layers`` for nodes downstream of all layers.
        starts: Nodes whose values are inputs of a layer: the last node of each layer, and the input of the first.
        graph: The graph, with bodies inlined.
    """

    layers: int
    of_node: tuple[int, ...]
    starts: frozenset[int]
    graph: Graph


def segments_of(model: Model) -> Segments:
    """Divide ``model`` into layers.

    The output of a layer, usually the sum of its residual connection, is the last value through which all data from its
    attention or recurrent state flows before data of another layer joins.

    Returns:
        The layer of each node; without layers if fewer than two repeat.
    """
    whole = inlined(model)
    graph = whole.graph
    live = _live(model, graph)
    depths, count = _depths(graph, _anchors(model, whole, live))
    ends = _ends(graph, live, depths, count)
    if len(ends) < 2:
        return Segments(0, (BEFORE,) * len(graph.nodes), frozenset(), graph)
    entry = _entry(graph, ends)
    starts = frozenset(ends) if entry is None else frozenset((*ends, entry))
    return Segments(len(ends), _assign(graph, ends, entry), starts, graph)


def _live(model: Model, graph: Graph) -> list[bool]:
    """Return for each node whether its data reaches an output that is not a cache."""
    writes = {cache.write for cache in analyze_caches(model).caches}
    live = [node.op == "Result" and node.name not in writes for node in graph.nodes]
    for node in reversed(graph.nodes):
        if live[node.index] and node.op not in NO_DATA:
            for value in node.inputs:
                if value is not None:
                    live[value.node] = True
    return live


def _anchors(model: Model, whole: Model, live: list[bool]) -> list[tuple[int | None, int]]:
    """Return layer and node of each attention block and recurrent state, in execution order."""
    graph, inventory = whole.graph, analyze_caches(model)
    blocks = zip(inventory.attention, whole.analysis(find_attention), strict=True)
    anchors = [(block.layer, attention.output.node) for block, attention in blocks]
    for cache in inventory.of_kind("linear"):
        node = graph.reads[cache.read]
        while users := [use.node for value in node.outputs for use in graph.uses(value) if live[use.node.index]]:
            node = users[0]
            if node.op not in _ARRANGES:
                anchors.append((cache.layer, node.index))
                break
    return sorted(anchors, key=lambda anchor: anchor[1])


def _depths(graph: Graph, anchors: list[tuple[int | None, int]]) -> tuple[list[int], int]:
    """Return for each node the last layer upstream, or -1; and the number of layers."""
    own: dict[int, int] = {}
    number, previous = -1, None
    for layer, index in anchors:
        if layer is None or layer != previous:
            number, previous = number + 1, layer
        own[index] = number
    depths = [-1] * len(graph.nodes)
    for node in graph.nodes:
        if node.op not in NO_DATA:
            upstream = (depths[value.node] for value in node.sources)
            depths[node.index] = max(own.get(node.index, -1), *upstream, -1)
    return depths, number + 1


def _ends(graph: Graph, live: list[bool], depths: list[int], count: int) -> list[int]:
    """Return the last node of each layer."""
    # Indices are topological: an edge bypasses the nodes between its ends, and an edge to a later layer all following.
    reached: list[float] = [-1] * count
    passed: list[list[int]] = [[] for _ in range(count)]
    for node in graph.nodes:
        layer = depths[node.index]
        if layer < 0 or not live[node.index]:
            continue
        if reached[layer] <= node.index:
            passed[layer].append(node.index)
        for user in (use.node for value in node.outputs for use in graph.uses(value) if use.node.op not in NO_DATA):
            if live[user.index]:
                to = user.index if depths[user.index] == layer else math.inf
                reached[layer] = max(reached[layer], to)
    ends = [_bare(graph, nodes[-1]) for nodes in passed[:-1] if nodes]
    if not ends:
        return []
    # No layer follows the last one, so it ends at a node of the same form as the end of the layer before.
    form = _form(graph, graph.nodes[ends[-1]])
    return ends + [index for index in passed[-1] if _form(graph, graph.nodes[index]) == form][-1:]


def _bare(graph: Graph, index: int) -> int:
    """Return the node upstream of casts.

    In optimum's llama, one cast feeds both the next norm and the residual connection.
    """
    node = graph.nodes[index]
    return graph.look_through(node.outputs[0], CASTS).node if node.outputs else index


def _form(graph: Graph, node: Node) -> object:
    return node.op, [value is not None and graph.producer(value).op == "Constant" for value in node.inputs]


def _entry(graph: Graph, ends: list[int]) -> int | None:
    """Return the input of the first layer, found by its counterpart in later layers."""
    for last, end in pairwise(ends):
        pending, seen = [(end, ends[0])], set()
        while pending:
            index, first = pending.pop()
            if index == last:
                return first
            node, counterpart = graph.nodes[index], graph.nodes[first]
            if index in seen or _form(graph, node) != _form(graph, counterpart):
                continue
            seen.add(index)
            pairs = zip(node.inputs, counterpart.inputs, strict=False)
            pending += [(left.node, right.node) for left, right in pairs if left is not None and right is not None]
    return None


def _assign(graph: Graph, ends: list[int], entry: int | None) -> tuple[int, ...]:
    layers = len(ends)
    own = {end: layer for layer, end in enumerate(ends)}
    if entry is not None:
        own[entry] = BEFORE
    assigned: list[int | None] = [None] * len(graph.nodes)
    after: list[int] = [BEFORE] * len(graph.nodes)
    for node in graph.nodes:
        if node.op in NO_DATA:
            continue
        upstream = max((after[value.node] for value in node.sources), default=BEFORE)
        after[node.index] = max(upstream, own.get(node.index, upstream - 1) + 1)
        if upstream >= 0 or node.index in own:
            assigned[node.index] = own.get(node.index, upstream)
    for node in reversed(graph.nodes):
        if assigned[node.index] is None and node.op not in {"Result", "Assign"}:
            assigned[node.index] = _home(assigned, [use.node for value in node.outputs for use in graph.uses(value)])
    for node in graph.nodes:
        if assigned[node.index] is None:
            sources = [*node.sources]
            assigned[node.index] = assigned[sources[0].node] if sources else BEFORE
    return tuple(BEFORE if layer is None else min(layer, layers) for layer in assigned)


def _home(assigned: list[int | None], users: list[Node]) -> int:
    """Return the layer of a node's users; `BEFORE` if they are in several layers."""
    readers = [user for user in users if user.op not in NO_DATA] or users
    homes = {layer for user in readers if (layer := assigned[user.index]) is not None}
    return homes.pop() if len(homes) == 1 else BEFORE
