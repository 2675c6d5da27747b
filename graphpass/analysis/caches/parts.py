"""Find caches that hold key and value in one tensor, and how the graph takes them apart."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise, starmap
from typing import TYPE_CHECKING

from graphpass.ir.layout import AxisName, KVLayout, layout_of

if TYPE_CHECKING:
    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.graph import Graph, Node, Use, Value
    from graphpass.ir.model import Model

__all__ = ["Parts", "Range", "carriers", "find_parts", "follow", "packed_caches", "size_of", "taken", "told_layout"]

#: Operators on each element by itself.
_SAME = frozenset({"Convert", "Identity"})


@dataclass(frozen=True, slots=True)
class Range:
    """A part of a tensor along one axis.

    Attributes:
        start: Its first entry.
        stop: The entry behind its last.
        keeps_axis: Whether whoever takes it keeps the axis.
    """

    start: int
    stop: int
    keeps_axis: bool = True


def taken(graph: Graph, node: Node, axis: int) -> tuple[Range, ...]:
    """Which parts of its first input along ``axis`` the outputs of ``node`` are; empty where that is not to be told."""
    size = size_of(node.inputs[0], axis)
    if size is None:
        return ()
    if node.op in {"Split", "VariadicSplit"} and node.attributes.get("axis") == axis:
        sizes = [size_of(output, axis) for output in node.outputs]
        starts = list(accumulate((part or 0 for part in sizes), initial=0))
        return tuple(starmap(Range, pairwise(starts))) if None not in sizes and starts[-1] == size else ()
    if node.op == "Slice" and node.attributes.get("axes") == (axis,):
        start, stop = (graph.constant(value) for value in node.inputs[1:3])
        if start is not None and stop is not None:
            found = Range(*slice(int(start.item()), int(stop.item())).indices(size)[:2])
            return (found,) if size_of(node.outputs[0], axis) == found.stop - found.start else ()
    if node.op == "Gather" and node.attributes.get("axis") == axis:
        place = graph.constant(node.inputs[1])
        if place is not None and place.ndim == 0:
            return (Range(int(place) % size, int(place) % size + 1, keeps_axis=False),)
    return ()


def size_of(value: Value | None, axis: int) -> int | None:
    """How many entries ``value`` has along ``axis``, where that is known."""
    size = value.shape[axis] if value is not None and value.shape is not None else None
    return size if isinstance(size, int) else None


def carriers(graph: Graph) -> tuple[dict[str, Node], dict[str, Node]]:
    """What caches are read by, Parameters or ReadValues, and what writes them, Results or Assigns; by name."""
    reads = {node.name: node for node in graph.of_op("Parameter", "ReadValue")}
    return reads, {node.name: node for node in graph.of_op("Result", "Assign")}


@dataclass(frozen=True, slots=True)
class Parts:
    """How a tensor is taken apart.

    Attributes:
        axis: Along which of its axes.
        ranges: The parts, in order.
        takers: What takes them: each output of these nodes, and which part it is.
    """

    axis: int
    ranges: tuple[Range, ...]
    takers: tuple[tuple[Value, Range], ...]

    def places(self, index: int) -> list[Value]:
        """The tensors that hold part ``index``."""
        wanted = (self.ranges[index].start, self.ranges[index].stop)
        return [value for value, part in self.takers if (part.start, part.stop) == wanted]


def find_parts(graph: Graph, past: Value) -> Parts | None:
    """How what is made of ``past`` is taken apart into two; ``None`` where it is not, or not in one way."""
    found: dict[int, list[tuple[Value, Range]]] = {}
    appended: set[int] = set()
    pending = [(past, tuple(range(past.rank or 0)))]
    while pending:
        value, axes = pending.pop()
        for use in graph.uses(value) if value.rank is not None else ():
            node = use.node
            for place, axis in enumerate(axes):
                ranges = taken(graph, node, place) if use.port == 0 else ()
                found.setdefault(axis, []).extend(zip(node.outputs, ranges, strict=bool(ranges)))
            follows = follow(use, axes)
            if follows is not None:
                appended |= {axes[node.attributes["axis"]]} if node.op == "Concat" else set()
                pending.append((node.outputs[0], follows))
    fitting = []
    for axis, takers in found.items():
        bounds = sorted({(part.start, part.stop) for _, part in takers})
        size = size_of(past, axis)
        if axis not in appended and len(bounds) == 2 and bounds[0] == (0, bounds[1][0]) and bounds[1][1] == size:
            fitting.append(Parts(axis, tuple(Range(*bound) for bound in bounds), tuple(takers)))
    return fitting[0] if len(fitting) == 1 else None


def packed_caches(inventory: Inventory) -> tuple[Cache, ...]:
    """The caches that grow and that attention reads as key and as value."""
    shared = {block.key for block in inventory.attention if block.key is not None and block.key == block.value}
    return tuple(cache for cache in inventory.of_kind("kv") if cache.name in shared)


def told_layout(model: Model, cache: Cache) -> KVLayout:
    """The layout of ``cache``, one of `packed_caches`, by how the graph takes it apart; else as `layout_of` tells it.

    Raises:
        UnsupportedError: GP381, it cannot be told.
    """
    reads = (node for node in model.graph.of_op("Parameter", "ReadValue") if node.name == cache.read)
    parts = next((find_parts(model.graph, node.outputs[0]) for node in reads), None)
    if parts is None:
        return layout_of(cache)
    if parts.axis == cache.axes.head_dim:
        return KVLayout(layout_of(cache).order, "content")
    names: dict[int | None, AxisName] = {
        cache.axes.batch: "batch",
        cache.axes.heads: "heads",
        cache.axes.sequence: "sequence",
        cache.axes.head_dim: "content",
        parts.axis: "pair",
    }
    order = [names.get(axis) for axis in range(len(cache.shape or ()))]
    if None in order or len(set(order)) < len(order):
        return layout_of(cache)
    return KVLayout(tuple(axis for axis in order if axis is not None), "axis")


def follow(use: Use, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Which axis is which behind an operator that works on the whole tensor; ``None`` behind all others."""
    node = use.node
    if node.op in _SAME or node.op == "Concat":
        return axes
    if node.op == "Gather" and use.port == 0 and "axis" in node.attributes and node.source(1).rank == 1:
        return axes
    if node.op == "Transpose" and "order" in node.attributes:
        return tuple(axes[axis] for axis in node.attributes["order"])
    return None
