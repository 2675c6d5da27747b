"""Takes a tensor that holds key and value apart, by the operators that do so in the graph.

What works on the whole tensor (the beam Gather, the Concat of new positions) works on each part instead; where the
graph takes a part it gets it. Whatever else reads the whole reads both parts put together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from graphpass.analysis.caches.parts import Parts, Range, follow, taken
from graphpass.ir.values import fixed_size
from graphpass.passes.caches.packing import resized_start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphpass.ir.graph import Graph, Node, Use, Value
    from graphpass.ir.rewriter import Handle, Rewriter

__all__ = ["unpack"]

#: Operators on each element by itself.
_SAME = frozenset({"Convert", "Identity"})


def unpack(
    graph: Graph, rewriter: Rewriter, read: Node, write: Node, parts: Parts, names: Sequence[tuple[str, str]]
) -> None:
    """Carry the parts of a tensor instead of it.

    Args:
        graph: The model as it is.
        rewriter: Edits the model.
        read: The Parameter or ReadValue of the tensor.
        write: Its Result or Assign.
        parts: How it is taken apart.
        names: Of each part what to call its input and output, or twice its variable.
    """
    _Unpack(graph, rewriter, parts).run(read, write, names)


@dataclass(frozen=True, slots=True)
class _Apart:
    """A tensor as its parts, which it has along ``axis``."""

    axis: int
    handles: tuple[Handle, ...]


_Key = tuple[int, int]


def _key(value: Value) -> _Key:
    return value.node, value.port


class _Unpack:
    def __init__(self, graph: Graph, rewriter: Rewriter, parts: Parts) -> None:
        self._graph = graph
        self._rewriter = rewriter
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
            self._rewriter.add_past(read, past, self._sizes(read.outputs[0], part), self._start(read, place, past))
            for place, (part, (past, _)) in enumerate(zip(self._ranges, names, strict=True))
        ]
        self._apart[_key(read.outputs[0])] = _Apart(self._axis, tuple(pasts))
        for node in self._graph.nodes:
            values = [value for value in node.inputs if value is not None]
            if node == write:
                presents = self._parts(write.source(), self._axis)
                for part, (_, present), handle in zip(self._ranges, names, presents, strict=True):
                    self._rewriter.add_present(write, present, self._sizes(read.outputs[0], part), handle)
            elif node.op == "Squeeze" and any(_key(value) in self._bare for value in values[:1]):
                self._replace(node.outputs[0], self._bare[_key(values[0])])
            elif any(_key(value) in self._apart for value in values):
                self._follow(node)
        self._rewriter.drop([write, read])

    def _sizes(self, whole: Value, part: Range) -> list[int | None]:
        sizes: list[int | None] = [None] * (whole.rank or 0)
        sizes[self._axis] = -1 if self._drops else part.stop - part.start
        return sizes

    def _start(self, read: Node, place: int, name: str) -> Handle | None:
        if not read.inputs:
            return None
        sizes = self._sizes(read.outputs[0], self._ranges[place])
        made = resized_start(self._graph, self._rewriter, read.source(), sizes, f"{name}/initial")
        return self._parts(read.source(), self._axis)[place] if made is None else made

    def _handle(self, value: Value) -> Handle:
        return self._replaced[_key(value)] if _key(value) in self._replaced else self._rewriter.native(value)

    def _replace(self, value: Value, handle: Handle) -> None:
        self._replaced[_key(value)] = handle
        for use in self._graph.uses(value):
            self._rewriter.redirect(use.node, use.port, handle)

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
                    self._rewriter.redirect(node, port, self._whole(value))

    def _place(self, node: Node) -> int:
        """Along which axis the inputs of a Concat are taken apart."""
        return next(self._apart[_key(value)].axis for value in _inputs(node) if _key(value) in self._apart)

    def _along(self, node: Node, apart: _Apart) -> int | None:
        """The axis along which the result of ``node``, which works on the whole, is apart."""
        axes = tuple(range(node.outputs[0].rank or 0))
        follows = follow(next(use for use in self._graph.uses(node.source()) if use.node == node), axes)
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
            self._rewriter.clone(
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
            if [fixed_size(one, axis) for one in joined] == sizes:
                return [self._bared(one, axis) for one in joined]
        split = self._rewriter.split(self._whole(value), axis, sizes, f"{value.name}/apart")
        if not self._drops:
            return split
        return [
            self._rewriter.op("Squeeze", part, axes=[axis], name=f"{value.name}/apart_{place}")
            for place, part in enumerate(split)
        ]

    def _bared(self, value: Value, axis: int) -> Handle:
        """``value`` without ``axis``, where parts do not have it."""
        node = self._graph.producer(value)
        if not self._drops:
            return self._handle(value)
        if node.op == "Unsqueeze" and node.attributes.get("axes") == (axis,):
            return self._handle(node.source())
        return self._rewriter.op("Squeeze", self._handle(value), axes=[axis], name=f"{value.name}/bare")

    def _whole(self, value: Value) -> Handle:
        """``value``, put together of its parts where it is apart."""
        apart = self._apart.get(_key(value))
        if apart is None:
            return self._handle(value)
        handles = list(apart.handles)
        if self._drops:
            handles = [
                self._rewriter.op("Unsqueeze", handle, axes=[apart.axis], name=f"{value.name}/part_{place}")
                for place, handle in enumerate(handles)
            ]
        return self._rewriter.op("Concat", *handles, axis=apart.axis, name=f"{value.name}/whole")

    def _take(self, node: Node, apart: _Apart, found: Sequence[Range]) -> None:
        for value, part in zip(node.outputs, found, strict=True):
            bounds = [(one.start, one.stop) for one in self._ranges]
            if (part.start, part.stop) not in bounds:
                self._rewriter.redirect(node, 0, self._whole(node.source()))
                return
            handle = apart.handles[bounds.index((part.start, part.stop))]
            if self._drops and part.keeps_axis:
                self._bare[_key(value)] = handle
                handle = self._rewriter.op("Unsqueeze", handle, axes=[apart.axis], name=f"{value.name}/kept_axis")
            self._replace(value, handle)

    def _shape(self, node: Node, apart: _Apart) -> None:
        """Dimensions are those of the first part, but for the one along which it is apart."""
        given = self._rewriter.whole_shape(node)
        self._rewriter.redirect(node, 0, apart.handles[0])
        places = [axis - (self._drops and axis > apart.axis) for axis in given]
        others: list[Use] = []
        for use in self._graph.uses(node.outputs[0]):
            picked = self._graph.constant(use.node.inputs[1]) if use.node.op == "Gather" and use.port == 0 else None
            if picked is None or apart.axis in numpy.array(given)[picked.reshape(-1)]:
                others.append(use)
            else:
                found = numpy.array(places)[picked].tolist()
                self._rewriter.redirect(use.node, 1, self._rewriter.constant(found, "i64", f"{use.node.name}/places"))
        if not others:
            return
        name, shape = f"{node.name}/whole", self._rewriter.native(node.outputs[0])
        total = self._rewriter.constant([self._ranges[-1].stop], "i64", f"{name}/size")
        sizes = [
            total if axis == apart.axis else self._rewriter.op("Gather", shape, [place], axis=0, name=f"{name}/{axis}")
            for axis, place in zip(given, places, strict=True)
        ]
        whole = self._rewriter.op("Concat", *sizes, axis=0, name=name)
        for use in others:
            self._rewriter.redirect(use.node, use.port, whole)


def _squeezed(graph: Graph, value: Value) -> bool:
    return any(use.node.op == "Squeeze" for use in graph.uses(value))


def _inputs(node: Node) -> list[Value]:
    return [value for value in node.inputs if value is not None]
