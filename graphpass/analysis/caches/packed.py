"""Find caches that pack keys and values, or several states, into one tensor."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import astuple, dataclass
from itertools import accumulate, pairwise, starmap

from graphpass.analysis.symbolic.folding import fold, fold_cuts
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.layout import AxisName, KVLayout, layout_of
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, SPLITS
from graphpass.ir.values import fixed_size


@dataclass(frozen=True, slots=True)
class FlatState:
    """One state in a flat tensor.

    Attributes:
        size: Size of the state's part along the split axis.
        pasts: The state at the start of a step: the Reshape of the part by each user.
        flattened: The new state, reshaped for the flat tensor.
        sizes: Dimensions of the state without the batch.
    """

    size: int
    pasts: tuple[Value, ...]
    flattened: Value
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Flat:
    """The split of a flat tensor into states, and the join of the new states.

    Attributes:
        axis: Axis of split and join.
        states: The states, in order.
        gather: The Gather by beam index before the split; ``None`` without one.
        takers: Operators that split the tensor.
    """

    axis: int
    states: tuple[FlatState, ...]
    gather: Node | None
    takers: tuple[Node, ...]


def only_beam_gather(graph: Graph, read: Node) -> Node | None:
    """Return the Gather on axis 0 that is the state's only user except ShapeOf.

    Args:
        graph: The graph.
        read: The Parameter or ReadValue of the state.

    Returns:
        The Gather by an index that is not constant; ``None`` without one.
    """
    readers = [use.node for use in graph.uses(read.outputs[0]) if use.node.op != "ShapeOf"]
    if len(readers) != 1 or readers[0].op != "Gather" or readers[0].attributes.get("axis") != 0:
        return None
    index = readers[0].source(1)
    return readers[0] if index.rank == 1 and graph.constant(index) is None else None


def find_flat(graph: Graph, read: Node, write: Node) -> Flat | None:
    """Return the packing of several states between ``read`` and ``write``; ``None`` without one.

    A Split, or Slices that cover the axis, split the tensor. Each part is reshaped to its state, whose axis 0 is the
    batch. A Concat joins the new states, each flattened by a Reshape. The tensor has no other users.

    Args:
        graph: The graph.
        read: The Parameter or ReadValue of the flat tensor.
        write: Its Result or Assign.
    """
    joined = graph.producer(write.source())
    if joined.op != "Concat" or read.outputs[0].rank is None:
        return None
    axis: int = joined.attributes["axis"]
    gather = only_beam_gather(graph, read)
    whole = gather.outputs[0] if gather is not None else read.outputs[0]
    uses = graph.uses(whole)
    cuts = [(use.node, taken(graph, use.node, axis)) for use in uses if use.port == 0]
    if axis == 0 or len(cuts) < len(uses) or not all(ranges for _, ranges in cuts):
        return None
    if gather is not None and len(graph.uses(read.outputs[0])) > 1:
        return None
    parts: dict[Range, list[Value]] = {}
    for node, ranges in cuts:
        for part, value in zip(ranges, node.outputs, strict=True):
            parts.setdefault(part, []).append(value)
    ordered = sorted(parts, key=lambda part: part.start)
    flattened = joined.sources
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
    return Flat(axis, tuple(states), gather, tuple(node for node, _ in cuts)) if len(states) == len(ordered) else None


def flat_caches(model: Model, inventory: Inventory) -> dict[Cache, Flat]:
    """Return the caches that store several states, with their packing.

    Args:
        model: The model.
        inventory: Its caches, of which only ``linear`` ones may be flat.
    """
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
    # State and part have equal numbers of elements per row, so axis 0 of both is the batch.
    if shapes or sizes is None or wanted is None or math.prod(sizes) != math.prod(wanted) or len(sizes) < 2:
        return None
    return FlatState(size, pasts, flattened, sizes)


def _fixed(value: Value) -> tuple[int, ...] | None:
    sizes = tuple(size for size in (value.shape or ())[1:] if isinstance(size, int))
    return sizes if value.rank is not None and len(sizes) == value.rank - 1 else None


@dataclass(frozen=True, slots=True)
class Range:
    """The range ``start:stop`` of a tensor along one axis.

    Attributes:
        start: First index.
        stop: Index after the last.
        keeps_axis: Whether the axis is kept; a Gather of one index removes it.
    """

    start: int
    stop: int
    keeps_axis: bool = True


def taken(graph: Graph, node: Node, axis: int) -> tuple[Range, ...]:
    """Return the range of the first input along ``axis`` of each output; empty if unknown.

    Args:
        graph: The graph.
        node: A user of the tensor; Split, Slice and Gather of one index select ranges.
        axis: Index of the tensor's axis, not negative.
    """
    size = fixed_size(node.inputs[0], axis)
    if size is None:
        return ()
    if node.op in SPLITS and node.attributes.get("axis") == axis:
        sizes = [fixed_size(output, axis) for output in node.outputs]
        starts = list(accumulate((part or 0 for part in sizes), initial=0))
        return tuple(starmap(Range, pairwise(starts))) if None not in sizes and starts[-1] == size else ()
    cuts = fold_cuts(graph, node)
    if len(cuts) == 1 and cuts[0].axis == axis and cuts[0].start is not None and cuts[0].stop is not None:
        part = Range(*slice(cuts[0].start, cuts[0].stop).indices(size)[:2])
        return (part,) if fixed_size(node.outputs[0], axis) == part.stop - part.start else ()
    if node.op == "Gather" and node.attributes.get("axis") == axis:
        place = fold(graph, node.inputs[1])
        if place is not None and place.ndim == 0:
            return (Range(int(place) % size, int(place) % size + 1, keeps_axis=False),)
    return ()


@dataclass(frozen=True, slots=True)
class StateParts:
    """The split of a tensor into all parts along an axis.

    Attributes:
        axis: The axis.
        ranges: Ranges of the parts, in order.
        takers: Values that contain a part, with its range.
    """

    axis: int
    ranges: tuple[Range, ...]
    takers: tuple[tuple[Value, Range], ...]

    def places(self, index: int) -> list[Value]:
        """Return the values that contain part ``index``."""
        wanted = (self.ranges[index].start, self.ranges[index].stop)
        return [value for value, part in self.takers if (part.start, part.stop) == wanted]


def find_state_parts(graph: Graph, past: Value) -> StateParts | None:
    """Return the only split of ``past``, or of a layout of it, into two parts.

    Args:
        graph: The graph.
        past: Content of a cache before the step.

    Returns:
        The split; ``None`` without one, or if several axes are split.
    """
    fitting = [parts for parts in _splits(graph, past) if len(parts.ranges) == 2]
    return fitting[0] if len(fitting) == 1 else None


def _splits(graph: Graph, past: Value) -> list[StateParts]:
    """Return the splits of ``past`` along axes to which no Concat appends."""
    parts: dict[int, list[tuple[Value, Range]]] = {}
    appended: set[int] = set()
    pending = [(past, tuple(range(past.rank or 0)))]
    while pending:
        value, axes = pending.pop()
        for use in graph.uses(value) if value.rank is not None else ():
            node = use.node
            for place, axis in enumerate(axes):
                ranges = taken(graph, node, place) if use.port == 0 else ()
                parts.setdefault(axis, []).extend(zip(node.outputs, ranges, strict=bool(ranges)))
            follows = follow(use, axes)
            if follows is not None:
                appended |= {axes[node.attributes["axis"]]} if node.op == "Concat" else set()
                pending.append((node.outputs[0], follows))
    splits = []
    for axis in sorted(parts.keys() - appended):
        bounds = sorted({(part.start, part.stop) for _, part in parts[axis]})
        ends = [0, *(stop for _, stop in bounds)]
        if len(bounds) > 1 and [start for start, _ in bounds] == ends[:-1] and ends[-1] == fixed_size(past, axis):
            splits.append(StateParts(axis, tuple(Range(*bound) for bound in bounds), tuple(parts[axis])))
    return splits


def stacked_caches(model: Model, inventory: Inventory) -> dict[Cache, StateParts]:
    """Return the growing caches that stack several layers, with their split.

    Layers have an axis of their own. The present joins the new tensors of the layers along the same axis.

    Args:
        model: The model.
        inventory: Its caches.
    """
    graph = model.graph
    readers = Counter(name for block in inventory.attention for name in {block.key, block.value})
    stacked = {}
    for cache in inventory.of_kind("kv"):
        joined = graph.producer(graph.writes[cache.write].source()) if cache.write in graph.writes else None
        if cache.read not in graph.reads or joined is None or joined.op != "Concat" or readers[cache.name] < 2:
            continue
        for parts in _splits(graph, graph.reads[cache.read].outputs[0]):
            if parts.axis == joined.attributes["axis"] and parts.axis not in astuple(cache.axes):
                stacked[cache] = parts
    return stacked


@dataclass(frozen=True, slots=True)
class MergedHeads:
    """The split of a cache's last axis into heads and their channels.

    Attributes:
        sizes: Number of heads, and size of each.
        pasts: The past with the axes apart.
        shapes: Reads of the other dimensions of the past.
        new: The cache after the step, with the axes apart.
    """

    sizes: tuple[int, int]
    pasts: tuple[Value, ...]
    shapes: tuple[Node, ...]
    new: Value


def merged_heads(model: Model, inventory: Inventory) -> dict[Cache, MergedHeads]:
    """Return the caches that every reader splits into heads, and the present merges.

    Args:
        model: The model.
        inventory: Its caches.
    """
    graph, merged = model.graph, dict[Cache, MergedHeads]()
    for cache in inventory.of_kind("unknown"):
        if cache.read in graph.parameters and cache.write in graph.writes:
            found = _merged(model, graph.parameters[cache.read], graph.producer(graph.writes[cache.write].source()))
            merged |= {cache: found} if found is not None else {}
    return merged


def _merged(model: Model, past: Value, join: Node) -> MergedHeads | None:
    graph, sizes = model.graph, model.analysis(infer_sizes)
    uses, last = graph.uses(past), (past.rank or 0) - 1
    splits = [use.node.outputs[0] for use in uses if use.node.op == "Reshape" and use.port == 0]
    shapes = [use.node for use in uses if use.node.op == "ShapeOf"]
    picks = [(use.node, fold(graph, use.node.input(1))) for node in shapes for use in graph.uses(node.outputs[0])]
    if join.op != "Reshape" or not splits or len(splits) + len(shapes) < len(uses):
        return None
    if any(node.op != "Gather" or place is None or (place % (last + 1) == last).any() for node, place in picks):
        return None
    whole, present, *apart = map(sizes.shape, (past, join.outputs[0], join.source(), *splits))
    if whole is None or present is None or any(shape is None or len(shape) != last + 2 for shape in apart):
        return None
    ends = {tuple(size.as_number for size in (shape or ())[last:]) for shape in apart}
    fronts = [(shape or ())[:last] for shape in apart]
    heads, size = ends.pop()
    is_split = not ends and heads and size and heads * size == whole[last].as_number == present[last].as_number
    if not is_split or fronts != [present[:last], *[whole[:last]] * len(splits)]:
        return None
    return MergedHeads((int(heads or 0), int(size or 0)), tuple(splits), tuple(shapes), join.source())


def is_packed(model: Model, inventory: Inventory) -> bool:
    """Return whether a growing cache stores keys with values, or several layers.

    Args:
        model: The model.
        inventory: Its caches.
    """
    return bool(packed_caches(inventory) or stacked_caches(model, inventory))


def packed_caches(inventory: Inventory) -> tuple[Cache, ...]:
    """Return the growing caches that attention reads both as key and as value."""
    shared = {block.key for block in inventory.attention if block.key is not None and block.key == block.value}
    return tuple(cache for cache in inventory.of_kind("kv") if cache.name in shared)


def packed_layout(model: Model, cache: Cache) -> KVLayout:
    """Return the layout of a packed ``cache`` by its split, otherwise by `layout_of`.

    Args:
        model: The model.
        cache: One of the `packed_caches`.

    Raises:
        UnsupportedError: GP381, the layout is unknown.
    """
    read = model.graph.reads.get(cache.read)
    parts = find_state_parts(model.graph, read.outputs[0]) if read is not None else None
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
    """Return the axes after an operator that keeps the whole tensor; ``None`` otherwise.

    Args:
        use: A use of the tensor or of a layout of it.
        axes: For each axis of the used value, the index of this axis in the tensor.
    """
    node = use.node
    if node.op in CASTS | {"Concat"}:
        return axes
    if node.op == "Gather" and use.port == 0 and "axis" in node.attributes and node.source(1).rank == 1:
        return axes
    if node.op == "Transpose" and "order" in node.attributes:
        return tuple(axes[axis] for axis in node.attributes["order"])
    return None
