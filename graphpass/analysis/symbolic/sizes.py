"""Infer sizes, and the integers of shape arithmetic, as linear expressions of dimensions.

Assumed sizes of combined operands are equal if neither is 1: a model that runs at more than one length has no others.
That suffices to classify caches, whatever ports declare. Proven sizes are equal only if they are in every inference
that succeeds; passes edit by these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import TypeAlias

from graphpass.analysis.symbolic.linear_size import Classes, Dimension, Size, Vector, divide, position, remaining
from graphpass.ir.axes import AxisEffect, axis_effect
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS

#: Equalities that are found late may prove others; two rounds find all in the fixtures.
_ROUNDS = 4

#: More sizes that were broadcast to one are not remembered.
_MOST_PARTS = 16

_ONE = Size.constant(1)

_Inferred: TypeAlias = "tuple[Size | None, ...] | None"


def infer_sizes(model: Model) -> Sizes:
    """Return the assumed sizes of all tensors of ``model``, for `Model.analysis`."""
    return Sizes(model.graph)


@dataclass(frozen=True, slots=True)
class _Change:
    """An axis whose size an operator changes; ``place`` counts among all such axes."""

    node: Node
    value: Value
    effect: AxisEffect
    axis: int
    place: int


class Sizes:
    """Sizes of a graph's tensors, and the integers of its shape arithmetic.

    Sizes are proven from ``given``, dimensions of Parameters and ReadValues by node index and axis; without, or if
    ``assumes``, names of dimensions count, and sizes that are broadcast to each other are equal.
    """

    def __init__(
        self, graph: Graph, given: Mapping[tuple[int, int], Dimension] | None = None, *, assumes: bool = False
    ) -> None:
        from graphpass.analysis.symbolic.contents import Contents

        self._graph = graph
        self._given = given or {}
        self._pasts = frozenset(self._given.values())
        self._proves = given is not None and not assumes
        self._classes = Classes()
        self._contents = Contents(graph, self._classes)
        self._shapes: dict[tuple[int, int], Vector] = {}
        #: Values with sizes that no rule gave.
        self._unknown: list[Value] = []
        #: The sizes that were broadcast to a dimension.
        self._parts: dict[Dimension, set[Size]] = {}
        #: The number of iterations of each loop.
        self._turns: dict[str, Size] = {}
        self._walk()
        if self._proves:
            self._settle()

    def shape(self, value: Value | None) -> Vector | None:
        """Return the size along each axis; ``None`` if the rank is unknown."""
        found = None if value is None else self._shapes.get((value.node, value.port))
        return None if found is None else tuple([self._classes.resolve(size) for size in found])

    def content(self, value: Value | None) -> Vector | None:
        """Return the integers of ``value``, flat; ``None`` if more than 16, or one is unknown."""
        found = self._contents.read(value)
        return None if found is None or None in found.flat else tuple(found.flat)

    def _walk(self) -> None:
        self._unknown = []
        for node in self._graph.nodes:
            for value in node.outputs:
                if value.shape is not None:
                    self._shapes[value.node, value.port] = self._shape(node, value)
                self._contents.note(node, value, self.shape(node.inputs[0]) if node.op == "ShapeOf" else None)

    def _settle(self) -> None:
        """Infer unknown sizes again until no more are equal."""
        for _ in range(_ROUNDS):
            joins = self._classes.joins
            for value in self._unknown:
                for axis, size in enumerate(self._inferred(self._graph.producer(value), value) or ()):
                    if size is not None:
                        self._classes.join(_fresh(value, axis), size)
            if self._contents.know_more():
                self._walk()
            elif self._classes.joins == joins:
                break

    def _shape(self, node: Node, value: Value) -> Vector:
        declared = value.shape or ()
        if node.op == "Constant":
            return tuple([Size.constant(size) for size in declared if isinstance(size, int)])
        inferred, sizes = self._inferred(node, value) or (None,) * len(declared), []
        for axis, (size, number) in enumerate(zip(inferred, declared, strict=True)):
            if isinstance(number, int):
                known = Size.constant(number)
                if size is not None and size.dimensions:
                    self._classes.join(size, known)
                sizes.append(known)
            else:
                sizes.append(_fresh(value, axis) if size is None else size)
        if self._proves and None in inferred:
            self._unknown.append(value)
        return tuple(sizes)

    def _inferred(self, node: Node, value: Value) -> _Inferred:
        rule, start = _RULES.get(node.op), node.attributes.get("kept", {}).get(value.port)
        if start is not None:
            return self.shape(node.inputs[start])
        sizes = rule(self, node) if rule is not None else self._by_table(node, value)
        return sizes if sizes is not None and len(sizes) == value.rank else None

    def _by_table(self, node: Node, value: Value) -> _Inferred:
        rank = value.rank or 0
        effect = axis_effect(node, rank) or self._along_computed(node, rank)
        if effect is None:
            return None
        if effect.kind in {"elementwise", "norm"}:
            return self._broadcast([self.shape(source) for source in node.inputs], value)
        shape = self.shape(node.inputs[0])
        if shape is None or any(origin is not None and origin >= len(shape) for origin in effect.origins):
            return None
        sizes: list[Size | None] = [_ONE if origin is None else shape[origin] for origin in effect.origins]
        change = _CHANGES.get(effect.kind)
        if change is not None:
            for place, axis in enumerate(effect.along):
                sizes[axis] = change(self, _Change(node, value, effect, axis, place), shape)
        return tuple(sizes)

    def _along_computed(self, node: Node, rank: int) -> AxisEffect | None:
        if len(node.inputs) != 2 or "axes" in node.attributes:
            return None
        source, axes = node.inputs[0], self.content(node.inputs[1])
        if axes is None or source is None or source.rank is None or any(axis.as_int is None for axis in axes):
            return None
        known = tuple((axis.as_int or 0) % max(source.rank, rank, 1) for axis in axes)
        return axis_effect(replace(node, attributes={**node.attributes, "axes": known}), rank)

    def _broadcast(self, shapes: list[Vector | None], value: Value, last: int = 0) -> _Inferred:
        """Return the sizes of operands combined to ``value``, without its ``last`` axes."""
        rank = (value.rank or 0) - last
        known = [shape for shape in shapes if shape is not None and len(shape) <= rank]
        if self._proves and len(known) < len(shapes):
            return None
        result: list[Size | None] = []
        for axis in range(rank):
            sizes = [shape[axis - rank] for shape in known if rank - axis <= len(shape)]
            sizes = [size for size in sizes if size != _ONE]
            if not sizes and len(known) < len(shapes):
                return None
            result.append(self._combined(sizes, _fresh(value, axis)) if sizes else _ONE)
        return tuple(result)

    def _combined(self, sizes: list[Size], result: Size) -> Size | None:
        first = sizes[0]
        if all(size == first for size in sizes):
            return first
        if not self._proves:
            for other in sizes[1:]:
                self._classes.join(first, other)
            return self._classes.resolve(first)
        parts = set(sizes).union(*(self._below(size) for size in sizes))
        self._parts[result.as_dimension] = parts if len(parts) <= _MOST_PARTS else set(sizes)
        return next((size for size in sizes if size.as_int is not None), None)

    def _below(self, size: Size) -> set[Size]:
        """Return the sizes broadcast to ``size``: each is that or 1."""
        return {self._classes.resolve(part) for part in self._parts.get(size.as_dimension, ())}

    def _source(self, node: Node) -> _Inferred:
        # Names state an input's sizes, which is no proof; inside, one name often stands for all unknown.
        declared = node.outputs[0].shape or ()
        names = declared if node.op == "Parameter" and not self._proves else (None,) * len(declared)
        given = [self._given.get((node.index, axis), name) for axis, name in enumerate(names)]
        return tuple(None if one is None or isinstance(one, int) else Size.of(one) for one in given)

    def _concat(self, node: Node) -> _Inferred:
        shapes = [shape for source in node.inputs if (shape := self.shape(source)) is not None]
        rank = node.outputs[0].rank or 0
        if len(shapes) != len(node.inputs) or any(len(shape) != rank for shape in shapes):
            return None
        result = []
        for axis, sizes in enumerate(zip(*shapes, strict=True)):
            is_joined = axis == node.attributes["axis"]
            for other in () if is_joined else sizes[1:]:
                self._classes.join(sizes[0], other)
            result.append(reduce(Size.__add__, sizes) if is_joined else sizes[0])
        return tuple(result)

    def _broadcast_to(self, node: Node) -> _Inferred:
        """Return a Broadcast's sizes; except in mode ``numpy`` its target may be 1."""
        shape, target = self.shape(node.inputs[0]), self.content(node.inputs[1])
        if self._proves and node.attributes.get("mode") == "numpy":
            return target
        if self._proves and shape is not None and target is not None and len(shape) == len(target):
            # Exporters copy no axis to a sum of lengths: it has that size already.
            for old, new in zip(shape, target, strict=True):
                # After a past neither is 1.
                if min(len(old.dimensions), len(new.dimensions)) > 1 and self._shares_past(old, new):
                    self._classes.join(old, new)
            target = tuple(
                old if old != _ONE and (len(new.dimensions) > 1 or new in self._below(old)) else new
                for old, new in zip(shape, target, strict=True)
            )
        return self._broadcast([shape, target], node.outputs[0])

    def _shares_past(self, one: Size, other: Size) -> bool:
        return any(dimension in self._pasts for dimension, _ in {*one.dimensions} & {*other.dimensions})

    def _reshape(self, node: Node) -> _Inferred:
        source, target = self.shape(node.inputs[0]) or (), self.content(node.inputs[1])
        if target is None:
            return None
        sizes: list[Size | None] = []
        for axis, size in enumerate(target):
            if size.as_int == 0 and node.attributes.get("special_zero", True):
                sizes.append(source[axis] if axis < len(source) else None)
            else:
                sizes.append(size if size.is_natural or (size.as_int != -1 and not self._proves) else None)
        if [size.as_int for size in target].count(-1) == 1 and sizes.count(None) == 1 and source:
            sizes[sizes.index(None)] = remaining(source, [size for size in sizes if size is not None])
        elif None not in sizes:
            self._join_remaining(source, [size for size in sizes if size is not None])
        return tuple(sizes)

    def _join_remaining(self, source: Vector, target: list[Size]) -> None:
        """Note that two sizes are equal which alone differ before and after a Reshape."""
        kept, others = list(source), []
        for size in target:
            # A past may be empty, which makes no size equal to another.
            if size in kept and size.as_dimension not in self._pasts:
                kept.remove(size)
            else:
                others.append(size)
        sides = [[size for size in side if size.as_int is None] for side in (kept, others)]
        counts = [prod(size.as_int or 1 for size in side) for side in (kept, others)]
        if [len(side) for side in sides] == [1, 1] and counts[0] == counts[1]:
            self._classes.join(sides[0][0], sides[1][0])

    def _matmul(self, node: Node) -> _Inferred:
        first, second = (self.shape(source) for source in node.inputs[:2])
        if first is None or second is None or min(len(first), len(second)) < 2:
            return None
        rows, inner = first[:-3:-1] if node.attributes["transpose_a"] else first[-2:]
        other, columns = second[:-3:-1] if node.attributes["transpose_b"] else second[-2:]
        self._classes.join(inner, other)
        batch = self._broadcast([first[:-2], second[:-2]], node.outputs[0], last=2)
        return None if batch is None else (*batch, rows, columns)

    def _attention(self, node: Node) -> _Inferred:
        """Return the query's sizes, unless the mask may have others."""
        query, key, content = (self.shape(source) for source in node.inputs[:3])
        mask = self.shape(node.input(3)) if node.input(3) is not None else ()
        if query is None or mask is None or len(mask) > len(query):
            return None
        if key and content:
            self._classes.join(key[-2], content[-2])
            for pair in [] if self._proves else zip(key[:-2], content[:-2], strict=False):
                if _ONE not in pair:
                    self._classes.join(*pair)
        padded = (_ONE,) * (len(query) - len(mask)) + mask
        sizes = [size if padded[axis] in {_ONE, size} else None for axis, size in enumerate(query[:-1])]
        return (*sizes, content[-1] if content else None)

    def _add(self, node: Node) -> _Inferred:
        # Embeddings of tokens and of positions are added one to one.
        if self._proves and all(self._is_embedding(source) for source in node.inputs):
            first, second = (self.shape(source) for source in node.inputs)
            if first and second:
                self._classes.join(first[-2], second[-2])
        return self._by_table(node, node.outputs[0])

    def _is_embedding(self, value: Value | None) -> bool:
        node = self._graph.producer(self._graph.look_through(value, CASTS)) if value is not None else None
        if node is None or node.op != "Gather" or node.source().rank != 2:
            return False
        rows = node.source(1).shape or ()
        return len(rows) == 2 and not all(isinstance(size, int) for size in rows)

    def _range(self, node: Node) -> _Inferred:
        start, stop, step = (self.content(source) for source in node.inputs)
        if not start or not stop or not step or step[0] != _ONE:
            return None
        return (stop[0] - start[0] if (stop[0] - start[0]).is_natural else None,)

    def _top(self, node: Node) -> _Inferred:
        shape, count, declared = self.shape(node.inputs[0]), self.content(node.inputs[1]), node.outputs[0].shape
        if shape is None or not count or count[0].as_int is None or declared is None:
            return None
        return tuple(None if isinstance(size, int) else shape[axis] for axis, size in enumerate(declared))

    def _choice(self, node: Node) -> _Inferred:
        shapes = [shape for source in node.inputs[1:] if (shape := self.shape(source)) is not None]
        rank = node.outputs[0].rank
        if self._proves or len(shapes) != len(node.inputs) - 1 or any(len(shape) != rank for shape in shapes):
            return None
        return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True))

    def _final(self, node: Node) -> _Inferred:
        """Return the sizes that no iteration changes; others grow by an unknown number."""
        result, *start = (self.shape(source) for source in node.inputs)
        if result is None or not start or start[0] is None or len(start[0]) != len(result):
            return None
        sizes = []
        for axis, (before, after) in enumerate(zip(start[0], result, strict=True)):
            rises, grown = before.as_int is None and (after - before).is_natural, _fresh(node.outputs[0], axis)
            sizes.append(before if before == after else before + grown if rises else grown)
        return tuple(sizes)

    def _sliced(self, node: Node) -> _Inferred:
        shape = self.shape(node.inputs[0])
        if shape is not None:
            # A loop has as many iterations as there are slices.
            self._turns.setdefault(node.called, shape[node.attributes["axis"]])
        return self._by_table(node, node.outputs[0])

    def _cut(self, change: _Change, shape: Vector) -> Size | None:
        inputs, whole = change.node.inputs, shape[change.axis]
        bounds = [self.content(source) for source in inputs[1:3]]
        port = change.node.attributes.get("steps_port", len(inputs))
        steps = self.content(inputs[port]) if port < len(inputs) else (_ONE,)
        if change.node.op != "Slice" or not steps or any(step != _ONE for step in steps):
            return None
        if any(bound is None or len(bound) != len(change.effect.along) for bound in bounds):
            return None
        first, last = (bound[change.place] for bound in bounds if bound is not None)
        stop = position(whole, last)
        if not self._proves:
            # A tensor is as long as the slice asks for.
            return stop - position(whole, first)
        if first != Size() or not stop.is_natural:
            return None
        return whole if (stop - whole).is_natural else stop if (whole - stop).is_natural else None

    def _part(self, change: _Change, shape: Vector) -> Size | None:
        node = change.node
        if node.op == "Split":
            return divide(shape[change.axis], Size.constant(len(node.outputs)))
        lengths = self.content(node.inputs[-1]) if len(node.inputs) > 1 else None
        size = lengths[change.value.port] if lengths is not None and len(lengths) == len(node.outputs) else None
        return size if size is not None and size.is_natural else None

    def _taken(self, change: _Change, shape: Vector) -> Size | None:  # noqa: ARG002
        indices = self.shape(change.node.inputs[1])
        return None if indices is None else indices[change.place - len(change.effect.along)]

    def _padded(self, change: _Change, shape: Vector) -> Size | None:
        # OpenVINO has an input for entries before and one for those after, ONNX one for both.
        contents = [self._contents.read(source) for source in change.node.inputs[1:3]]
        pads = [size for content in contents if content is not None for size in content.flat]
        added = pads[change.axis :: len(shape)][:2]
        return shape[change.axis] + added[0] + added[1] if len(added) == 2 and None not in added else None

    def _copied(self, change: _Change, shape: Vector) -> Size | None:
        repeats, origin = self.content(change.node.inputs[1]), change.effect.origins[change.axis]
        if repeats is None or origin is None or len(repeats) != len(shape):
            return None
        return shape[origin] if repeats[origin] == _ONE else None

    def _iterated(self, change: _Change, shape: Vector) -> Size | None:
        if change.node.op == "Sliced":
            return _ONE
        turns = self._turns.setdefault(change.node.called, Size.of((change.node.called, "turns")))
        return turns if change.effect.origins[change.axis] is None or shape[change.axis] == _ONE else None


def _fresh(value: Value, axis: int) -> Size:
    return Size.of((value.node, value.port, axis))


_RULES: dict[str, Callable[[Sizes, Node], _Inferred]] = {
    "Parameter": Sizes._source,
    "ReadValue": Sizes._source,
    "Add": Sizes._add,
    "Concat": Sizes._concat,
    "Reshape": Sizes._reshape,
    "Broadcast": Sizes._broadcast_to,
    "MatMul": Sizes._matmul,
    "ScaledDotProductAttention": Sizes._attention,
    "Range": Sizes._range,
    "GatherElements": lambda sizes, node: sizes.shape(node.inputs[1]),
    "TopK": Sizes._top,
    "If": Sizes._choice,
    "Final": Sizes._final,
    "Sliced": Sizes._sliced,
}

#: Changes of size by effects along an axis; other effects leave it open.
_CHANGES: dict[str, Callable[[Sizes, _Change, Vector], Size | None]] = {
    "cut": Sizes._cut,
    "part": Sizes._part,
    "take": Sizes._taken,
    "rows": Sizes._taken,
    "reduce": lambda *_: _ONE,
    "pad": Sizes._padded,
    "copy": Sizes._copied,
    "product": lambda *_: None,
    "window": lambda *_: None,
    "iteration": Sizes._iterated,
}
