"""Split caches of key and value; see the pass `unpack`.

Operators on the packed cache (the beam Gather, the Concat of new positions) are replaced by one operator for each part;
users of a part read the part. All other users read a Concat of both parts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.operands import scores_product, weighted_value
from graphpass.analysis.caches.packed import Range, StateParts, find_state_parts, follow, taken
from graphpass.ir.cache import Axes, Cache
from graphpass.ir.declaration import Declaration
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size
from graphpass.ir.writer import Handle
from graphpass.passes.caches.packing import finish, names_apart, part_names, resized_start, split_name
from graphpass.passes.caches.relayout import move_picks


def unpack_keys_with_values(
    model: Model, rewriter: Rewriter, caches: Iterable[Cache]
) -> tuple[dict[str, list[Declaration]], list[str]]:
    """Replace each packed cache by a cache of keys and a cache of values.

    Args:
        model: The model.
        rewriter: Its rewriter, which the caller finishes.
        caches: Caches that each pack key and value.

    Returns:
        Declarations of the parts by cache, and a note on each unchanged cache.
    """
    graph, notes = model.graph, []
    made: dict[str, list[Declaration]] = {}
    unpacking = _Unpacking(rewriter)
    for cache in caches:
        read = graph.reads.get(cache.read)
        parts = find_state_parts(graph, read.outputs[0]) if read is not None else None
        first = _first_is_key(model, parts) if parts is not None else None
        if read is None or parts is None or first is None:
            notes.append(f"cache {cache.name} stays unchanged: its key and value are not found")
            continue
        names = names_apart(model, cache, part_names)
        unpacking.add(read, graph.writes[cache.write], parts, names if first else names[::-1])
        made[cache.name] = _declared(cache, parts, [past for past, _ in names])
    unpacking.run()
    return made, notes


def unpack_layers(model: Model, stacked: Mapping[Cache, StateParts]) -> None:
    """Replace each cache of several layers by a cache for each layer.

    Args:
        model: The model, which is edited.
        stacked: Caches with their split; see `stacked_caches`.
    """
    rewriter, graph = model.rewriter(), model.graph
    unpacking = _Unpacking(rewriter)
    for cache, parts in stacked.items():
        names = names_apart(model, cache, functools.partial(split_name, count=len(parts.ranges)))
        unpacking.add(graph.reads[cache.read], graph.writes[str(cache.write)], parts, names)
    unpacking.run()
    finish(model, rewriter, {cache.name: [] for cache in stacked})


def _first_is_key(model: Model, parts: StateParts) -> bool | None:
    """Return whether the first part is the key; ``None`` if no attention distinguishes the parts."""
    graph = model.graph
    values_of = [set(parts.places(index)) for index in (0, 1)]
    earliest = min(value.node for part in values_of for value in part)
    for attention in model.analysis(find_attention):
        if attention.node.index < earliest:
            continue
        product = scores_product(graph, attention.node) if attention.key is None else None
        key = product.inputs[1] if product is not None else attention.key
        value = attention.value or weighted_value(graph, attention.node)
        of_key, of_value = (_reached(graph, operand, values_of, earliest) for operand in (key, value))
        if of_key or of_value:
            return of_key == [0] if sorted((of_key, of_value)) == [[0], [1]] else None
    return None


def _reached(graph: Graph, operand: Value | None, values_of: list[set[Value]], earliest: int) -> list[int]:
    pending, seen = [operand], set()
    while pending:
        value = pending.pop()
        if value is None or value.node < earliest or value in seen:
            continue
        seen.add(value)
        node = graph.producer(value)
        if node.op != "ShapeOf" and not any(value in part for part in values_of):
            pending.extend(node.inputs)
    return [index for index, part in enumerate(values_of) if part & seen]


def _declared(cache: Cache, parts: StateParts, names: list[str]) -> list[Declaration]:
    gone = parts.axis if parts.axis != cache.axes.head_dim else None

    def place(axis: int | None) -> int | None:
        return axis - (gone is not None and axis > gone) if axis is not None else None

    moved = Axes(*(place(axis) for axis in astuple(cache.axes)))
    return [Declaration(names[0], "kv", "key", moved), Declaration(names[1], "kv", "value", moved)]


@dataclass(frozen=True, slots=True)
class _Whole:
    """A packed tensor, replaced by its parts.

    Attributes:
        ranges: The parts, as ranges along the axis that is split.
        drops: Whether parts do not have this axis.
    """

    ranges: tuple[Range, ...]
    drops: bool

    @property
    def sizes(self) -> list[int]:
        return [part.stop - part.start for part in self.ranges]


@dataclass(frozen=True, slots=True)
class _Apart:
    whole: _Whole
    axis: int
    handles: tuple[Handle, ...]


class _Unpacking:
    """Replaces operators downstream of packed caches, in one traversal for all caches."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._graph = rewriter.graph
        self._rewriter = rewriter
        self._apart: dict[Value, _Apart] = {}
        #: Parts without the split axis, by the value that has it.
        self._bare: dict[Value, Handle] = {}
        self._replaced: dict[Value, Handle] = {}
        self._writes: list[tuple[Node, Node, Sequence[str]]] = []

    def add(self, read: Node, write: Node, parts: StateParts, names: Sequence[tuple[str, str]]) -> None:
        """Replace a cache by its parts, with past and present names."""
        drops = all(part.stop - part.start == 1 for part in parts.ranges) and any(
            not part.keeps_axis or any(use.node.op == "Squeeze" for use in self._graph.uses(value))
            for value, part in parts.takers
        )
        whole, past = _Whole(parts.ranges, drops), read.outputs[0]
        handles = [
            self._rewriter.add_past(read, name, sizes, self._start(read, sizes, place, parts.axis, whole, name))
            for place, (sizes, (name, _)) in enumerate(zip(_sizes(past, parts.axis, whole), names, strict=True))
        ]
        self._apart[past] = _Apart(whole, parts.axis, tuple(handles))
        self._writes.append((read, write, [name for _, name in names]))

    def run(self) -> None:
        for node in self._graph.nodes:
            values = _inputs(node)
            if node.op == "Squeeze" and values[0] in self._bare:
                self._replace(node.outputs[0], self._bare[values[0]])
            elif any(value in self._apart for value in values) and node.op not in {"Result", "Assign"}:
                self._follow(node)
        for read, write, names in self._writes:
            apart = self._apart[read.outputs[0]]
            presents = self._parts(write.source(), apart.axis, apart.whole)
            shapes = _sizes(read.outputs[0], apart.axis, apart.whole)
            for name, sizes, handle in zip(names, shapes, presents, strict=True):
                self._rewriter.add_present(write, name, sizes, handle)
            self._rewriter.drop([write, read])

    def _start(
        self, read: Node, sizes: Sequence[int | None], place: int, axis: int, whole: _Whole, name: str
    ) -> Handle | None:
        if not read.inputs:
            return None
        made = resized_start(self._rewriter, read.source(), sizes, f"{name}/initial")
        return self._parts(read.source(), axis, whole)[place] if made is None else made

    def _latest(self, value: Value) -> Handle:
        return self._replaced[value] if value in self._replaced else self._rewriter.native(value)

    def _replace(self, value: Value, handle: Handle) -> None:
        self._replaced[value] = handle
        for use in self._graph.uses(value):
            self._rewriter.redirect(use.node, use.port, handle)

    def _follow(self, node: Node) -> None:
        apart = self._apart.get(node.inputs[0]) if node.inputs[0] is not None else None
        first = next(self._apart[value] for value in _inputs(node) if value in self._apart)
        if node.op == "Concat" and node.attributes["axis"] != first.axis:
            sources = [self._parts(value, first.axis, first.whole) for value in _inputs(node)]
            self._apart[node.outputs[0]] = self._each(node, sources, first.axis, first.whole)
        elif apart is not None and node.op == "ShapeOf":
            self._shape(node, apart)
        elif apart is not None and (ranges := taken(self._graph, node, apart.axis)):
            self._take(node, apart, ranges)
        elif apart is not None and (axis := self._axis_after(node, apart)) is not None:
            self._apart[node.outputs[0]] = self._each(node, [apart.handles], axis, apart.whole)
        else:
            for port, value in enumerate(node.inputs):
                if value in self._apart:
                    self._rewriter.redirect(node, port, self._concatenated(value))

    def _axis_after(self, node: Node, apart: _Apart) -> int | None:
        axes = tuple(range(node.outputs[0].rank or 0))
        follows = follow(next(use for use in self._graph.uses(node.source()) if use.node == node), axes)
        return follows.index(apart.axis) if follows is not None and node.op != "Concat" else None

    def _each(self, node: Node, sources: Sequence[Sequence[Handle]], axis: int, whole: _Whole) -> _Apart:
        attributes = node.attributes
        axes: list[int] | None = None
        if node.op == "Transpose":
            before = attributes["order"][axis]
            kept = [old for old in attributes["order"] if not whole.drops or old != before]
            axes = [old - (whole.drops and old > before) for old in kept]
        elif "axis" in attributes:
            axes = [attributes["axis"] - (whole.drops and attributes["axis"] > axis)]
        handles = [
            self._rewriter.clone(
                node,
                {port: source[place] for port, source in enumerate(sources)},
                f"{node.outputs[0].name}/{end}",
                axes,
            )
            for place, end in enumerate(("key", "value") if len(whole.ranges) == 2 else range(len(whole.ranges)))
        ]
        return _Apart(whole, axis, tuple(handles))

    def _parts(self, value: Value, axis: int, whole: _Whole) -> list[Handle]:
        """Return the parts of ``value`` along ``axis``: inputs of its Concat, or a split."""
        apart = self._apart.get(value)
        if apart is not None and apart.axis == axis:
            return list(apart.handles)
        node = self._graph.producer(value)
        if node.op == "Concat" and node.attributes["axis"] == axis:
            joined = _inputs(node)
            if [fixed_size(value, axis) for value in joined] == whole.sizes:
                return [self._without_axis(value, axis) if whole.drops else self._latest(value) for value in joined]
        split = self._rewriter.split(self._concatenated(value), axis, whole.sizes, f"{value.name}/apart")
        if not whole.drops:
            return split
        return [
            self._rewriter.op("Squeeze", part, axes=[axis], name=f"{value.name}/apart_{place}")
            for place, part in enumerate(split)
        ]

    def _without_axis(self, value: Value, axis: int) -> Handle:
        node = self._graph.producer(value)
        if node.op == "Unsqueeze" and node.attributes.get("axes") == (axis,):
            return self._latest(node.source())
        return self._rewriter.op("Squeeze", self._latest(value), axes=[axis], name=f"{value.name}/bare")

    def _concatenated(self, value: Value) -> Handle:
        apart = self._apart.get(value)
        if apart is None:
            return self._latest(value)
        handles = apart.handles
        if apart.whole.drops:
            handles = tuple(
                self._rewriter.op("Unsqueeze", handle, axes=[apart.axis], name=f"{value.name}/part_{place}")
                for place, handle in enumerate(handles)
            )
        return self._rewriter.op("Concat", *handles, axis=apart.axis, name=f"{value.name}/whole")

    def _take(self, node: Node, apart: _Apart, ranges: Sequence[Range]) -> None:
        bounds = [(part.start, part.stop) for part in apart.whole.ranges]
        for value, part in zip(node.outputs, ranges, strict=True):
            if (part.start, part.stop) not in bounds:
                self._rewriter.redirect(node, 0, self._concatenated(node.source()))
                return
            handle = apart.handles[bounds.index((part.start, part.stop))]
            if apart.whole.drops and part.keeps_axis:
                self._bare[value] = handle
                handle = self._rewriter.op("Unsqueeze", handle, axes=[apart.axis], name=f"{value.name}/kept_axis")
            self._replace(value, handle)

    def _shape(self, node: Node, apart: _Apart) -> None:
        """Redirect a ShapeOf to the first part, except for the dimension that is split."""
        stated = self._rewriter.whole_shape(node)
        self._rewriter.redirect(node, 0, apart.handles[0])
        indices = [axis - (apart.whole.drops and axis > apart.axis) for axis in stated]
        kept = [-1 if axis == apart.axis else index for axis, index in zip(stated, indices, strict=True)]
        others = move_picks(self._rewriter, node, kept)
        if not others:
            return
        name, shape = f"{node.name}/whole", self._rewriter.native(node.outputs[0])
        total = self._rewriter.constant([apart.whole.ranges[-1].stop], "i64", f"{name}/size")
        sizes = [
            total if axis == apart.axis else self._rewriter.op("Gather", shape, [index], axis=0, name=f"{name}/{axis}")
            for axis, index in zip(stated, indices, strict=True)
        ]
        whole = self._rewriter.op("Concat", *sizes, axis=0, name=name)
        for use in others:
            self._rewriter.redirect(use.node, use.port, whole)


def _sizes(past: Value, axis: int, whole: _Whole) -> list[list[int | None]]:
    """Return each part's dimensions for `Rewriter.add_past`."""
    shape: list[int | None] = [None] * (past.rank or 0)
    return [[*shape[:axis], -1 if whole.drops else size, *shape[axis + 1 :]] for size in whole.sizes]


def _inputs(node: Node) -> list[Value]:
    return [value for value in node.inputs if value is not None]
