"""Takes a tensor that holds key and value apart, by the operators that do so in the graph.

What works on the whole tensor (the beam Gather, the Concat of new positions) works on each part instead; where the
graph takes a part it gets it. Whatever else reads the whole reads both parts put together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from graphpass.ir.layout import AxisName, KVLayout, layout_of
from graphpass.passes.caches.packing import Range, input_of, resized_start, size_of, taken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.editor import Editor, Handle
    from graphpass.ir.graph import Graph, Node, Use, Value
    from graphpass.ir.model import Model

__all__ = ["Parts", "find_parts", "packed_caches", "told_layout", "unpack"]

#: Operators on each element by itself.
_SAME = frozenset({"Convert", "Identity"})


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
            follows = _follow(use, axes)
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


def _follow(use: Use, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Which axis is which behind an operator that works on the whole tensor; ``None`` behind all others."""
    node = use.node
    if node.op in _SAME or node.op == "Concat":
        return axes
    if node.op == "Gather" and use.port == 0 and "axis" in node.attributes and input_of(node, 1).rank == 1:
        return axes
    if node.op == "Transpose" and "order" in node.attributes:
        return tuple(axes[axis] for axis in node.attributes["order"])
    return None


def unpack(
    graph: Graph, editor: Editor, read: Node, write: Node, parts: Parts, names: Sequence[tuple[str, str]]
) -> None:
    """Carry the parts of a tensor instead of it.

    Args:
        graph: The model as it is.
        editor: Edits the model.
        read: The Parameter or ReadValue of the tensor.
        write: Its Result or Assign.
        parts: How it is taken apart.
        names: Of each part what to call its input and output, or twice its variable.
    """
    _Unpack(graph, editor, parts).run(read, write, names)


@dataclass(frozen=True, slots=True)
class _Apart:
    """A tensor as its parts, which it has along ``axis``."""

    axis: int
    handles: tuple[Handle, ...]


_Key = tuple[int, int]


def _key(value: Value) -> _Key:
    return value.node, value.port


class _Unpack:
    def __init__(self, graph: Graph, editor: Editor, parts: Parts) -> None:
        self._graph = graph
        self._editor = editor
        self._ranges = parts.ranges
        #: Whether the axis is one of key and value alone, which the parts do not have.
        self._drops = all(part.stop - part.start == 1 for part in parts.ranges) and any(
            not part.keeps_axis or _squeezed(graph, value) for value, part in parts.takers
        )
        self._axis = parts.axis
        self._apart: dict[_Key, _Apart] = {}
        self._bare: dict[_Key, Handle] = {}
        self._replaced: dict[_Key, Handle] = {}

    def run(self, read: Node, write: Node, names: Sequence[tuple[str, str]]) -> None:
        pasts = [
            self._editor.add_past(read, past, self._sizes(read.outputs[0], part), self._start(read, place, past))
            for place, (part, (past, _)) in enumerate(zip(self._ranges, names, strict=True))
        ]
        self._apart[_key(read.outputs[0])] = _Apart(self._axis, tuple(pasts))
        for node in self._graph.nodes:
            values = [value for value in node.inputs if value is not None]
            if node == write:
                presents = self._parts(input_of(write), self._axis)
                for part, (_, present), handle in zip(self._ranges, names, presents, strict=True):
                    self._editor.add_present(write, present, self._sizes(read.outputs[0], part), handle)
            elif node.op == "Squeeze" and any(_key(value) in self._bare for value in values[:1]):
                self._replace(node.outputs[0], self._bare[_key(values[0])])
            elif any(_key(value) in self._apart for value in values):
                self._follow(node)
        self._editor.drop([write, read])

    def _sizes(self, whole: Value, part: Range) -> list[int | None]:
        sizes: list[int | None] = [None] * (whole.rank or 0)
        sizes[self._axis] = -1 if self._drops else part.stop - part.start
        return sizes

    def _start(self, read: Node, place: int, name: str) -> Handle | None:
        if not read.inputs:
            return None
        sizes = self._sizes(read.outputs[0], self._ranges[place])
        made = resized_start(self._graph, self._editor, input_of(read), sizes, f"{name}/initial")
        return self._parts(input_of(read), self._axis)[place] if made is None else made

    def _handle(self, value: Value) -> Handle:
        return self._replaced[_key(value)] if _key(value) in self._replaced else self._editor.handle(value)

    def _replace(self, value: Value, handle: Handle) -> None:
        self._replaced[_key(value)] = handle
        for use in self._graph.uses(value):
            self._editor.redirect(use.node, use.port, handle)

    def _follow(self, node: Node) -> None:
        source = node.inputs[0]
        apart = self._apart.get(_key(source)) if source is not None else None
        if node.op == "Concat" and node.attributes["axis"] != (place := self._place(node)):
            self._apart[node.index, 0] = self._each(node, [self._parts(value, place) for value in _inputs(node)], place)
        elif apart is not None and node.op == "ShapeOf":
            self._shape(node, apart)
        elif apart is not None and (found := taken(self._graph, node, apart.axis)):
            self._take(node, apart, found)
        elif apart is not None and (follows := self._along(node, apart)) is not None:
            self._apart[node.index, 0] = self._each(node, [list(apart.handles)], follows)
        else:
            for port, value in enumerate(node.inputs):
                if value is not None and _key(value) in self._apart:
                    self._editor.redirect(node, port, self._whole(value))

    def _place(self, node: Node) -> int:
        """Along which axis the inputs of a Concat are taken apart."""
        return next(self._apart[_key(value)].axis for value in _inputs(node) if _key(value) in self._apart)

    def _along(self, node: Node, apart: _Apart) -> int | None:
        """The axis along which the result of ``node``, which works on the whole, is apart."""
        axes = tuple(range(node.outputs[0].rank or 0))
        follows = _follow(next(use for use in self._graph.uses(input_of(node)) if use.node == node), axes)
        return follows.index(apart.axis) if follows is not None and node.op != "Concat" else None

    def _each(self, node: Node, sources: Sequence[Sequence[Handle]], axis: int) -> _Apart:
        """``node`` on each part; its result is apart along ``axis``."""
        given = node.attributes
        axes: list[int] | None = None
        if node.op == "Transpose":
            before = given["order"][axis]
            axes = [place - (self._drops and place > before) for place in given["order"]]
            axes = [place for place, old in zip(axes, given["order"], strict=True) if not self._drops or old != before]
        elif "axis" in given:
            axes = [given["axis"] - (self._drops and given["axis"] > axis)]
        name = node.outputs[0].name
        handles = [
            self._editor.again(
                node, {port: source[place] for port, source in enumerate(sources)}, f"{name}/{end}", axes
            )
            for place, end in enumerate(("key", "value"))
        ]
        return _Apart(axis, tuple(handles))

    def _parts(self, value: Value, axis: int) -> list[Handle]:
        """The parts of ``value`` along ``axis``: those that it was put together of, or a split."""
        apart = self._apart.get(_key(value))
        if apart is not None and apart.axis == axis:
            return list(apart.handles)
        node, sizes = self._graph.producer(value), [part.stop - part.start for part in self._ranges]
        if node.op == "Concat" and node.attributes["axis"] == axis:
            joined = _inputs(node)
            if [size_of(one, axis) for one in joined] == sizes:
                return [self._bared(one, axis) for one in joined]
        split = self._editor.split(self._whole(value), axis, sizes, f"{value.name}/apart")
        if not self._drops:
            return split
        return [self._editor.remove_axis(part, axis, f"{value.name}/apart_{place}") for place, part in enumerate(split)]

    def _bared(self, value: Value, axis: int) -> Handle:
        """``value`` without ``axis``, where parts do not have it."""
        node = self._graph.producer(value)
        if not self._drops:
            return self._handle(value)
        if node.op == "Unsqueeze" and node.attributes.get("axes") == (axis,):
            return self._handle(input_of(node))
        return self._editor.remove_axis(self._handle(value), axis, f"{value.name}/bare")

    def _whole(self, value: Value) -> Handle:
        """``value``, put together of its parts where it is apart."""
        apart = self._apart.get(_key(value))
        if apart is None:
            return self._handle(value)
        handles = list(apart.handles)
        if self._drops:
            handles = [
                self._editor.insert_axis(handle, apart.axis, f"{value.name}/part_{place}")
                for place, handle in enumerate(handles)
            ]
        return self._editor.join(handles, apart.axis, f"{value.name}/whole")

    def _take(self, node: Node, apart: _Apart, found: Sequence[Range]) -> None:
        for value, part in zip(node.outputs, found, strict=True):
            bounds = [(one.start, one.stop) for one in self._ranges]
            if (part.start, part.stop) not in bounds:
                self._editor.redirect(node, 0, self._whole(input_of(node)))
                return
            handle = apart.handles[bounds.index((part.start, part.stop))]
            if self._drops and part.keeps_axis:
                self._bare[_key(value)] = handle
                handle = self._editor.insert_axis(handle, apart.axis, f"{value.name}/kept_axis")
            self._replace(value, handle)

    def _shape(self, node: Node, apart: _Apart) -> None:
        """Dimensions are those of the first part, but for the one along which it is apart."""
        given = self._editor.whole_shape(node)
        self._editor.redirect(node, 0, apart.handles[0])
        places = [axis - (self._drops and axis > apart.axis) for axis in given]
        others: list[Use] = []
        for use in self._graph.uses(node.outputs[0]):
            picked = self._graph.constant(use.node.inputs[1]) if use.node.op == "Gather" and use.port == 0 else None
            if picked is None or apart.axis in numpy.array(given)[picked.reshape(-1)]:
                others.append(use)
            else:
                found = numpy.array(places)[picked].tolist()
                self._editor.redirect(use.node, 1, self._editor.integers(found, f"{use.node.name}/places"))
        if not others:
            return
        name, shape = f"{node.name}/whole", self._editor.handle(node.outputs[0])
        total = self._editor.integers([self._ranges[-1].stop], f"{name}/size")
        sizes = [
            total if axis == apart.axis else self._editor.pick(shape, [place], f"{name}/{axis}")
            for axis, place in zip(given, places, strict=True)
        ]
        whole = self._editor.join(sizes, 0, name)
        for use in others:
            self._editor.redirect(use.node, use.port, whole)


def _squeezed(graph: Graph, value: Value) -> bool:
    return any(use.node.op == "Squeeze" for use in graph.uses(value))


def _inputs(node: Node) -> list[Value]:
    return [value for value in node.inputs if value is not None]
