"""The text form of a model, a layer, or the neighborhood of a node."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterable

from graphpass.analysis.caches.chain import find_chain
from graphpass.analysis.caches.masks import find_masks
from graphpass.errors import UsageError
from graphpass.ir.bodies import inlined
from graphpass.ir.graph import Graph, Node
from graphpass.ir.model import Model
from graphpass.ir.operators import NO_DATA
from graphpass.ir.text.printer import statements_of
from graphpass.ir.text.statements import Statement
from graphpass.reports.attention import mask_in_words
from graphpass.reports.text import some_of


def in_text_form(
    model: Model, *, around: str | None = None, distance: int = 3, layer: int | None = None
) -> tuple[Statement, ...]:
    """Return the statements of a model, with the effective masks of attention as comments.

    Args:
        model: The model; bodies are inlined by `graphpass.ir.bodies`.
        around: Return only the neighborhood of this node: its name, or a suffix of its name.
        distance: Largest number of edges between ``around`` and a returned node.
        layer: Return only this layer.

    Raises:
        UsageError: GP271, no node or several nodes match ``around``; GP272, the layer does not exist.
    """
    view = inlined(model)
    graph = view.graph
    nodes: set[int] | None = None
    if around is not None:
        nodes = _around(graph, _named(graph, around), distance)
    if layer is not None:
        inside = _layer(model, layer)
        nodes = inside if nodes is None else nodes & inside
    shown = [node for node in graph.nodes if nodes is None or node.index in nodes]
    masks = {mask.node.index: mask for mask in view.analysis(find_masks)}
    remarks = {node.index: tuple(mask_in_words(masks[node.index])) for node in shown if node.index in masks}
    return statements_of(graph, shown, remarks)


def _named(graph: Graph, name: str) -> Node:
    nodes = [node for node in graph.nodes if node.op != "Constant"]
    named = [node for node in nodes if node.name == name] or [node for node in nodes if node.name.endswith(name)]
    if len(named) == 1:
        return named[0]
    if named:
        reason = f"{len(named)} nodes have names that end with {name!r}: {some_of([node.name for node in named])}"
        raise UsageError("GP271", reason, "give more of the name")
    near = difflib.get_close_matches(name, [node.name for node in nodes], n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "graphpass print MODEL lists the nodes"
    raise UsageError("GP271", f"no node has a name that ends with {name!r}", hint)


def _around(graph: Graph, node: Node, distance: int) -> set[int]:
    reached, ring = {node.index}, [node]
    for _ in range(distance):
        above = [graph.producer(value) for node in ring for value in node.sources]
        below = [
            use.node for node in ring if node.op != "Parameter" for value in node.outputs for use in graph.uses(value)
        ]
        ring = [node for node in {node.index: node for node in (*above, *below)}.values() if node.index not in reached]
        ring = [node for node in ring if node.op not in {"Constant", "Parameter"}]
        reached |= {node.index for node in ring}
    return reached


def _layer(model: Model, layer: int) -> set[int]:
    """Return the indices of a layer's nodes, up to the next layer or the logits.

    Raises:
        UsageError: GP272, the layer has no caches, or the layers cannot be determined.
    """
    chain = find_chain(model)
    if isinstance(chain, str):
        raise UsageError("GP272", f"cannot determine the layers of the model: {chain}", "print --around a node")
    starts: dict[int, int] = {}
    for cache in chain.caches:
        if cache.layer is not None and cache.name in chain.homes:
            starts[cache.layer] = min(chain.homes[cache.name], starts.get(cache.layer, len(chain.cuts)))
    if layer not in starts:
        raise UsageError("GP272", f"layer {layer} has no caches", f"layers with caches: {', '.join(map(str, starts))}")
    graph, ends = chain.graph, [cut.node for cut in chain.cuts]
    last = min((start for start in starts.values() if start > starts[layer]), default=len(ends))
    own = {cache.write for cache in chain.caches if cache.layer == layer}
    indices = {index for index in chain.deep if starts[layer] <= bisect_left(ends, index) < last}
    writes = [graph.writes[name] for name in own if name in graph.writes]
    indices |= {
        node.index for node in _owned(graph, [*map(graph.nodes.__getitem__, sorted(indices)), *writes], chain.deep)
    }
    return indices | {node.index for node in writes}


def _owned(graph: Graph, nodes: Iterable[Node], deep: set[int]) -> list[Node]:
    """Return the upstream nodes whose outputs only ``nodes``, or each other, read."""
    listed = list(nodes)
    upstream = {
        node.index: node
        for node in graph.backward(
            [value for node in listed for value in node.inputs],
            lambda node: () if node.index in deep or node.op in NO_DATA else node.inputs,
        )
        if node.index not in deep and node.op != "Constant"
    }
    inside = {node.index for node in listed} | upstream.keys()
    for index in sorted(upstream, reverse=True):
        if any(use.node.index not in inside for value in upstream[index].outputs for use in graph.uses(value)):
            inside.discard(index)
    return [node for index, node in upstream.items() if index in inside]
