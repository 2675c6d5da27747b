"""The way of a cache through the graph: from past through update to attention and back."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from graphpass.analysis.attention.find import find_attention
from graphpass.ir.bodies import inlined
from graphpass.ir.paths import shortest_way

if TYPE_CHECKING:
    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.graph import Graph, Node
    from graphpass.ir.model import Model

__all__ = ["Flow", "Stop", "flow_of"]


@dataclass(frozen=True, slots=True)
class Stop:
    """One operator on the way."""

    op: str
    name: str


@dataclass(frozen=True, slots=True)
class Flow:
    """The way of one cache.

    Attributes:
        update: From the past to what is written back, both included; only the past where nothing is written.
        reading: What follows to the attention that reads the cache, from where its way leaves ``update``; empty where
            none reads it.
    """

    update: tuple[Stop, ...]
    reading: tuple[Stop, ...]


def flow_of(model: Model, inventory: Inventory, cache: Cache) -> Flow:
    """The shortest way of ``cache`` through ``model``, by data alone."""
    model = inlined(model)
    graph = model.graph
    read = _find(graph, cache.read, "Parameter", "ReadValue")
    write = _find(graph, cache.write, "Result", "Assign") if cache.write is not None else None
    update = (shortest_way(model, read, write) if write is not None else ()) or (read,)
    reader = _reader(model, inventory, cache)
    reading = shortest_way(model, read, reader) if reader is not None else ()
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(update, reading, strict=False)))
    return Flow(_stops(update), _stops(reading[shared:]))


def _reader(model: Model, inventory: Inventory, cache: Cache) -> Node | None:
    """The fused attention that reads ``cache``; of decomposed attention, its Softmax or its product with the value."""
    blocks = zip(inventory.attention, model.analysis(find_attention), strict=True)
    for block, attention in blocks:
        if cache.name == block.value:
            return model.graph.producer(attention.output)
        if cache.name == block.key:
            return attention.node
    return None


def _find(graph: Graph, name: str, *ops: str) -> Node:
    return next(node for node in graph.nodes if node.name == name and (not ops or node.op in ops))


def _stops(nodes: tuple[Node, ...]) -> tuple[Stop, ...]:
    return tuple(Stop(node.attributes.get("loop", node.op), node.name) for node in nodes)
