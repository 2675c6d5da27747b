"""Trace caches through the graph, and fold layers that are alike into one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from graphpass.analysis.attention.find import find_attention
from graphpass.ir.bodies import inlined
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Node
from graphpass.ir.model import Model
from graphpass.ir.operators import SOURCES
from graphpass.ir.paths import shortest_way


@dataclass(frozen=True, slots=True)
class Stop:
    """Names one operator on the way of a cache."""

    op: str
    name: str


@dataclass(frozen=True, slots=True)
class Flow:
    """Describes the way of one cache.

    Attributes:
        update: From the past to the present, both included; only the past if nothing is written back.
        reading: From the end of the common part with ``update`` to the attention that reads the cache; empty if none
            does.
    """

    update: tuple[Stop, ...]
    reading: tuple[Stop, ...]


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Joins layers whose caches have the same kinds, roles, shapes and ways.

    Attributes:
        layers: Their numbers; empty for caches of unknown layer.
        lanes: Caches of the first of them, each with its way.
        members: Caches of all of them.
    """

    layers: tuple[int, ...]
    lanes: tuple[tuple[Cache, Flow], ...]
    members: tuple[Cache, ...]


def flow_of(model: Model, inventory: Inventory, cache: Cache) -> Flow:
    """Return the shortest way of ``cache`` through ``model``, by data alone."""
    model = inlined(model)
    read = next(node for node in model.graph.of_op(*SOURCES) if node.name == cache.read)
    writes = (node for node in model.graph.of_op("Result", "Assign") if node.name == cache.write)
    write, reader = next(writes, None), _reader(model, inventory, cache)
    update = (shortest_way(model, read, write) if write is not None else ()) or (read,)
    reading = shortest_way(model, read, reader) if reader is not None else ()
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(update, reading, strict=False)))
    return Flow(_stops(update), _stops(reading[shared:]))


def _reader(model: Model, inventory: Inventory, cache: Cache) -> Node | None:
    for block, attention in zip(inventory.attention, model.analysis(find_attention), strict=True):
        if cache.name == block.value:
            return model.graph.producer(attention.output)
        if cache.name == block.key:
            return attention.node
    return None


def _stops(nodes: tuple[Node, ...]) -> tuple[Stop, ...]:
    return tuple(Stop(node.attributes.get("loop", node.op), node.name) for node in nodes)


def group_layers(model: Model, inventory: Inventory) -> tuple[LayerGroup, ...]:
    """Group layers with equal caches and operators around them, in order of their first layer."""
    layers: dict[int | None, list[Cache]] = {}
    for cache in inventory.caches:
        layers.setdefault(cache.layer, []).append(cache)
    groups: dict[object, list[tuple[int | None, list[tuple[Cache, Flow]]]]] = {}
    for layer, caches in layers.items():
        lanes = [(cache, flow_of(model, inventory, cache)) for cache in caches]
        groups.setdefault(tuple(_likeness(*lane) for lane in lanes), []).append((layer, lanes))
    return tuple(
        LayerGroup(
            layers=tuple(layer for layer, _ in group if layer is not None),
            lanes=tuple(group[0][1]),
            members=tuple(cache for _, lanes in group for cache, _ in lanes),
        )
        for group in groups.values()
    )


def _likeness(cache: Cache, flow: Flow) -> object:
    ways = tuple(tuple(stop.op for stop in stops) for stops in (flow.update, flow.reading))
    shape = tuple(dimension if isinstance(dimension, int) else None for dimension in cache.shape or ())
    return cache.kind, cache.role, cache.axes, cache.element_type, shape, ways
