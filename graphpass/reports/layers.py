"""Paths of caches through the graph, and groups of layers with equal caches and paths."""

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
    """One operator on the path of a cache."""

    op: str
    name: str


@dataclass(frozen=True, slots=True)
class Flow:
    """The paths of one cache.

    Attributes:
        update: Path from past to present, both included; only the past if the cache is not written.
        reading: Path to the attention block that reads the cache, without the prefix shared with ``update``; empty if
            no block reads it.
    """

    update: tuple[Stop, ...]
    reading: tuple[Stop, ...]


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers whose caches have the same kinds, roles, shapes and paths.

    Attributes:
        layers: Numbers of the layers; empty for caches of unknown layer.
        lanes: Caches of the first layer, each with its paths.
        members: Caches of all layers.
    """

    layers: tuple[int, ...]
    lanes: tuple[tuple[Cache, Flow], ...]
    members: tuple[Cache, ...]


def flow_of(model: Model, inventory: Inventory, cache: Cache) -> Flow:
    """Return the shortest paths of ``cache`` through ``model``, along data edges.

    Args:
        model: The model; paths lead through bodies, too.
        inventory: The caches of the model, with the attention blocks at which paths of keys and values end.
        cache: A cache of ``inventory``.
    """
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
    """Return groups of layers with equal caches and paths, ordered by their first layers.

    Args:
        model: The model.
        inventory: The caches to group; caches of unknown layer are grouped as one layer.
    """
    layers: dict[int | None, list[Cache]] = {}
    for cache in inventory.caches:
        layers.setdefault(cache.layer, []).append(cache)
    groups: dict[object, list[tuple[int | None, list[tuple[Cache, Flow]]]]] = {}
    for layer, caches in layers.items():
        lanes = [(cache, flow_of(model, inventory, cache)) for cache in caches]
        groups.setdefault(tuple(_form(*lane) for lane in lanes), []).append((layer, lanes))
    return tuple(
        LayerGroup(
            layers=tuple(layer for layer, _ in group if layer is not None),
            lanes=tuple(group[0][1]),
            members=tuple(cache for _, lanes in group for cache, _ in lanes),
        )
        for group in groups.values()
    )


def _form(cache: Cache, flow: Flow) -> object:
    paths = tuple(tuple(stop.op for stop in stops) for stops in (flow.update, flow.reading))
    shape = tuple(dimension if isinstance(dimension, int) else None for dimension in cache.shape or ())
    return cache.kind, cache.role, cache.axes, cache.element_type, shape, paths
