"""Find caches that hold key and value in one tensor, and how the graph takes them apart."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise, starmap

from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.constants import fold, fold_cuts
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.layout import AxisName, KVLayout, layout_of
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, SPLITS
from graphpass.ir.values import fixed_size

__all__ = ["Parts", "Range", "find_parts", "follow", "packed_caches", "packed_layout", "taken"]


@dataclass(frozen=True, slots=True)
class Range:
    """A part of a tensor along one axis.

    Attributes:
        start: Its first entry.
        stop: The entry after its last.
        keeps_axis: Whether the operator that takes it keeps the axis.
    """

    start: int
    stop: int
    keeps_axis: bool = True


def taken(graph: Graph, node: Node, axis: int) -> tuple[Range, ...]:
    """Return the parts of its first input along ``axis`` that ``node`` outputs; empty if they are not known."""
    size = fixed_size(node.inputs[0], axis)
    if size is None:
        return ()
    if node.op in SPLITS and node.attributes.get("axis") == axis:
        sizes = [fixed_size(output, axis) for output in node.outputs]
        starts = list(accumulate((part or 0 for part in sizes), initial=0))
        return tuple(starmap(Range, pairwise(starts))) if None not in sizes and starts[-1] == size else ()
    cuts = fold_cuts(graph, node)
    if len(cuts) == 1 and cuts[0].axis == axis and cuts[0].start is not None and cuts[0].stop is not None:
        found = Range(*slice(cuts[0].start, cuts[0].stop).indices(size)[:2])
        return (found,) if fixed_size(node.outputs[0], axis) == found.stop - found.start else ()
    if node.op == "Gather" and node.attributes.get("axis") == axis:
        place = fold(graph, node.inputs[1])
        if place is not None and place.ndim == 0:
            return (Range(int(place) % size, int(place) % size + 1, keeps_axis=False),)
    return ()


@dataclass(frozen=True, slots=True)
class Parts:
    """Way in which a tensor is taken apart.

    Attributes:
        axis: The axis along which parts lie.
        ranges: The parts, in order.
        takers: The values that are parts, and their ranges.
    """

    axis: int
    ranges: tuple[Range, ...]
    takers: tuple[tuple[Value, Range], ...]

    def places(self, index: int) -> list[Value]:
        """Return the tensors that hold part ``index``."""
        wanted = (self.ranges[index].start, self.ranges[index].stop)
        return [value for value, part in self.takers if (part.start, part.stop) == wanted]


def find_parts(graph: Graph, past: Value) -> Parts | None:
    """Return how layouts of ``past`` are taken apart into two; ``None`` if they are not, or not in one way."""
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
        size = fixed_size(past, axis)
        if axis not in appended and len(bounds) == 2 and bounds[0] == (0, bounds[1][0]) and bounds[1][1] == size:
            fitting.append(Parts(axis, tuple(Range(*bound) for bound in bounds), tuple(takers)))
    return fitting[0] if len(fitting) == 1 else None


def packed_caches(inventory: Inventory) -> tuple[Cache, ...]:
    """Return the growing caches that attention reads both as key and as value."""
    shared = {block.key for block in inventory.attention if block.key is not None and block.key == block.value}
    return tuple(cache for cache in inventory.of_kind("kv") if cache.name in shared)


def packed_layout(model: Model, cache: Cache) -> KVLayout:
    """Return the layout of ``cache``, one of `packed_caches`, by how the graph takes it apart; else by `layout_of`.

    Raises:
        UnsupportedError: GP381, it is not known.
    """
    read = model.graph.reads.get(cache.read)
    parts = find_parts(model.graph, read.outputs[0]) if read is not None else None
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
    """Return the axes after an operator that works on the whole tensor; ``None`` after all others."""
    node = use.node
    if node.op in CASTS | {"Concat"}:
        return axes
    if node.op == "Gather" and use.port == 0 and "axis" in node.attributes and node.source(1).rank == 1:
        return axes
    if node.op == "Transpose" and "order" in node.attributes:
        return tuple(axes[axis] for axis in node.attributes["order"])
    return None
