"""Find flat tensors that hold several states of a layer, as `pack` makes them, by how they are taken apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphpass.analysis.caches.parts import Range, taken
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.values import fixed_size

__all__ = ["Flat", "FlatState", "beam_gather", "find_flat", "flat_caches"]


@dataclass(frozen=True, slots=True)
class FlatState:
    """One state in a flat tensor.

    Attributes:
        size: Number of entries of the flat tensor.
        pasts: The state as each reader's Reshape makes it of its part.
        flattened: The new state as it enters the flat tensor: a Reshape's result.
        sizes: The state's dimensions but the first, the batch.
    """

    size: int
    pasts: tuple[Value, ...]
    flattened: Value
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Flat:
    """Way in which a flat tensor is taken apart and put together.

    Attributes:
        axis: The axis along which states lie.
        states: The states, in order.
        gather: Reorders it by beams before it is taken apart; ``None`` if nothing does.
        takers: The operators that take it apart.
    """

    axis: int
    states: tuple[FlatState, ...]
    gather: Node | None
    takers: tuple[Node, ...]


def beam_gather(graph: Graph, read: Node) -> Node | None:
    """Return the Gather along axis 0 through which alone the state of ``read`` is read, but for its shape."""
    readers = [use.node for use in graph.uses(read.outputs[0]) if use.node.op != "ShapeOf"]
    if len(readers) != 1 or readers[0].op != "Gather" or readers[0].attributes.get("axis") != 0:
        return None
    index = readers[0].source(1)
    return readers[0] if index.rank == 1 and graph.constant(index) is None else None


def find_flat(graph: Graph, read: Node, write: Node) -> Flat | None:
    """Return how the tensor between ``read`` and ``write`` holds several states; ``None`` if it does not.

    A Split, or Slices that leave nothing out, take it apart; each part is reshaped to its state, which keeps the batch;
    a Concat puts the new states together, each flattened by a Reshape. Nothing else reads it.
    """
    joined = graph.producer(write.source())
    if joined.op != "Concat" or read.outputs[0].rank is None:
        return None
    axis: int = joined.attributes["axis"]
    gather = beam_gather(graph, read)
    whole = gather.outputs[0] if gather is not None else read.outputs[0]
    uses = graph.uses(whole)
    found = [(use.node, taken(graph, use.node, axis)) for use in uses if use.port == 0]
    if axis == 0 or len(found) < len(uses) or not all(ranges for _, ranges in found):
        return None
    if gather is not None and len(graph.uses(read.outputs[0])) > 1:
        return None
    parts: dict[Range, list[Value]] = {}
    for node, ranges in found:
        for part, value in zip(ranges, node.outputs, strict=True):
            parts.setdefault(part, []).append(value)
    ordered = sorted(parts, key=lambda part: part.start)
    flattened = [value for value in joined.inputs if value is not None]
    sizes = [part.stop - part.start for part in ordered]
    bounds = [0, *(part.stop for part in ordered)]
    if len(ordered) < 2 or [part.start for part in ordered] != bounds[:-1] or bounds[-1] != fixed_size(whole, axis):
        return None
    if [fixed_size(value, axis) for value in flattened] != sizes:
        return None
    states = [
        state
        for part, value in zip(ordered, flattened, strict=True)
        if (state := _state(graph, parts[part], value, part.stop - part.start)) is not None
    ]
    return Flat(axis, tuple(states), gather, tuple(node for node, _ in found)) if len(states) == len(ordered) else None


def flat_caches(model: Model, inventory: Inventory) -> dict[Cache, Flat]:
    """Return the caches that hold several states, and how."""
    graph = model.graph
    return {
        cache: flat
        for cache in inventory.of_kind("linear")
        if cache.read in graph.reads and cache.write in graph.writes
        if (flat := find_flat(graph, graph.reads[cache.read], graph.writes[cache.write])) is not None
    }


def _state(graph: Graph, parts: list[Value], flattened: Value, size: int) -> FlatState | None:
    readers = [use for value in parts for use in graph.uses(value)]
    if graph.producer(flattened).op != "Reshape" or not readers:
        return None
    if any(use.node.op != "Reshape" or use.port != 0 for use in readers):
        return None
    if any(use.node.outputs[0] == flattened for use in readers):
        return None
    pasts = tuple(use.node.outputs[0] for use in readers)
    shapes = {_fixed(value) for value in pasts}
    wanted = _fixed(parts[0])
    sizes = shapes.pop()
    # As many elements for each batch entry as the part has: so the batch is the first axis of both. And no input of
    # fewer axes is taken for a past.
    if shapes or sizes is None or wanted is None or math.prod(sizes) != math.prod(wanted) or len(sizes) < 2:
        return None
    return FlatState(size, pasts, flattened, sizes)


def _fixed(value: Value) -> tuple[int, ...] | None:
    """Return all dimensions but the first, if they are known."""
    sizes = tuple(size for size in (value.shape or ())[1:] if isinstance(size, int))
    return sizes if value.rank is not None and len(sizes) == value.rank - 1 else None
