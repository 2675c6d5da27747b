"""Infer the sizes of tensors, and the integers that shape arithmetic computes, as linear expressions of dimensions.

One engine walks a `Graph` of either dialect, in one of two modes:

assume
    Sizes of operands that are combined are equal if neither is 1: a model that runs at more than one length has no
    others. Enough to tell caches apart, whatever the ports declare.
prove
    Sizes are equal only if they are in every inference that succeeds. Passes edit by these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from graphpass.analysis.shapes.contents import Contents
from graphpass.analysis.shapes.linear_size import Classes, Dimension, Size, Vector, divide, multiply
from graphpass.ir.axes import AxisEffect, axis_effect
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.slices import NO_END
from graphpass.ir.values import SAME_ELEMENTS

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.ir.types import Dialect

__all__ = ["Sizes", "infer_sizes"]

#: Walks over a graph at most; equalities that a walk finds late may let the next one find more.
_ROUNDS = 4

_ONE = Size.constant(1)

_Place: TypeAlias = tuple[int, int]


def infer_sizes(model: Model) -> Sizes:
    """Return the assumed sizes of all tensors of ``model``, for `Model.analysis`."""
    return Sizes(model.graph, model.dialect)


class Sizes:
    """Sizes of a graph's tensors, and the integers that its shape arithmetic computes."""

    def __init__(
        self, graph: Graph, dialect: Dialect, given: Mapping[tuple[int, int], Dimension] | None = None
    ) -> None:
        """Infer them.

        Args:
            graph: The model.
            dialect: The order of a Slice's inputs: ONNX has steps after axes, OpenVINO before.
            given: Dimensions of Parameters and ReadValues, by node index and axis. If not ``None``, sizes are proven
                from them; else they are assumed.
        """
        self._graph = graph
        self._given = given or {}
        self._proves = given is not None
        self._classes = Classes()
        self._shapes: dict[_Place, Vector] = {}
        self._step_port = 4 if dialect == "onnx" else 3
        self._contents = Contents(graph, self._classes, self._step_port)
        #: The sizes that were broadcast to a dimension.
        self._parts: dict[Dimension, set[Size]] = {}
        #: The number of iterations of each loop.
        self._turns: dict[str, Size] = {}
        for _ in range(_ROUNDS if self._proves else 1):
            joins = self._classes.joins
            self._walk()
            if self._classes.joins == joins:
                break

    def shape(self, value: Value | None) -> Vector | None:
        """Return the size along each axis; ``None`` if not even the rank is known."""
        found = None if value is None else self._shapes.get((value.node, value.port))
        return None if found is None else tuple([self._classes.resolve(size) for size in found])

    def content(self, value: Value | None) -> Vector | None:
        """Return the integers that ``value`` holds, flat; ``None`` if they are more than 16, or unknown."""
        found = self._contents.read(value)
        return None if found is None else tuple(found.flat)

    def _walk(self) -> None:
        for node in self._graph.nodes:
            if node.op == "Constant":
                (value,) = node.outputs
                self._shapes[value.node, value.port] = tuple(map(Size.constant, value.shape or ()))  # type: ignore[arg-type]
            else:
                for value in node.outputs:
                    if value.rank is not None:
                        self._shapes[value.node, value.port] = self._shape(node, value, value.rank)
                if self._proves:
                    self._equate(node)
            for value in node.outputs:
                shape = self.shape(node.inputs[0]) if node.op == "ShapeOf" else None
                self._contents.note(node, value, shape)

    def _shape(self, node: Node, value: Value, rank: int) -> Vector:
        rule = _RULES.get(node.op)
        sizes = rule(self, node, value) if rule is not None else self._by_table(node, value, rank)
        known = sizes if sizes is not None and len(sizes) == rank else (None,) * rank
        declared = value.shape or ()
        return tuple([self._as_declared(value, axis, size, declared[axis]) for axis, size in enumerate(known)])

    def _as_declared(self, value: Value, axis: int, size: Size | None, declared: int | str | None) -> Size:
        """Return ``size``, or what is declared, if that is a number."""
        if isinstance(declared, int):
            found = Size.constant(declared)
            if size is not None and size.dimensions:
                self._classes.join(size, found)
            return found
        return _fresh(value, axis) if size is None else size

    def source(self, node: Node, value: Value) -> tuple[Size | None, ...]:
        """Parameter, ReadValue: sizes that are given.

        Names are an input's word for its sizes, which is no proof. Those inside are often one word for all unknown.
        """
        declared = value.shape or ()
        names = declared if node.op == "Parameter" and not self._proves else (None,) * len(declared)
        return tuple(
            Size.of(self._given[node.index, axis])
            if (node.index, axis) in self._given
            else Size.of(name)
            if isinstance(name, str)
            else None
            for axis, name in enumerate(names)
        )

    def _by_table(self, node: Node, value: Value, rank: int) -> tuple[Size | None, ...] | None:
        effect = axis_effect(node, rank) or self._along_computed(node, rank)
        if effect is None:
            return None
        if effect.kind == "elementwise":
            return self._broadcast([self.shape(source) for source in node.inputs], value)
        shape = self.shape(node.inputs[0])
        if shape is None or any(origin is not None and origin >= len(shape) for origin in effect.origins):
            return None
        sizes: list[Size | None] = [_ONE if origin is None else shape[origin] for origin in effect.origins]
        change = _CHANGES.get(effect.kind)
        if change is not None:
            for axis in effect.along:
                sizes[axis] = change(self, node, value, effect, axis)
        return tuple(sizes)

    def _along_computed(self, node: Node, rank: int) -> AxisEffect | None:
        """Return the effect of ``node`` along the axes that its second input is computed to hold."""
        axes = self.content(node.inputs[1]) if len(node.inputs) == 2 and "axes" not in node.attributes else None
        source = node.inputs[0].rank if node.inputs and node.inputs[0] is not None else None
        if axes is None or source is None or any(axis.as_int is None for axis in axes):
            return None
        most = max(source, rank)
        known = tuple((axis.as_int or 0) % most for axis in axes)
        return axis_effect(replace(node, attributes={**node.attributes, "axes": known}), rank)

    def _broadcast(self, shapes: list[Vector | None], value: Value, last: int = 0) -> tuple[Size | None, ...] | None:
        """Return the sizes of operands that are combined to ``value``, but for its ``last`` axes."""
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

    def _combined(self, sizes: list[Size], unknown: Size) -> Size:
        """Return the size along an axis that all operands have, unless they have 1 there."""
        first = sizes[0]
        if all(size == first for size in sizes):
            return first
        if not self._proves:
            for other in sizes[1:]:
                self._classes.join(first, other)
            return self._classes.resolve(first)
        self._parts[unknown.as_dimension] = set(sizes).union(*(self._below(size) for size in sizes))
        return next((size for size in sizes if size.as_int is not None), unknown)

    def _is_kept(self, old: Size, new: Size) -> bool:
        """Whether a tensor of size ``old`` has it after a Broadcast to ``new``, too.

        Exporters copy no axis to a sum of lengths: it has that size already.
        """
        return len(new.dimensions) > 1 or new in self._below(old)

    def _below(self, size: Size) -> set[Size]:
        """Return the sizes that were broadcast to ``size``: each is that or 1."""
        return {self._classes.resolve(part) for part in self._parts.get(size.as_dimension, ())}

    def concat(self, node: Node, value: Value) -> Vector | None:
        """Concat: a sum along its axis, the same along the others."""
        shapes = [shape for source in node.inputs if (shape := self.shape(source)) is not None]
        rank = value.rank or 0
        if len(shapes) != len(node.inputs) or any(len(shape) != rank for shape in shapes):
            return None
        result = []
        for axis in range(rank):
            sizes = [shape[axis] for shape in shapes]
            if axis == node.attributes["axis"]:
                result.append(reduce(Size.__add__, sizes))
                continue
            for other in sizes[1:]:
                self._classes.join(sizes[0], other)
            result.append(sizes[0])
        return tuple(result)

    def cut(self, node: Node, value: Value, effect: AxisEffect, axis: int) -> Size | None:  # noqa: ARG002
        """Slice of step 1."""
        place, shape = effect.along.index(axis), self.shape(node.inputs[0])
        bounds = [self.content(source) for source in node.inputs[1:3]]
        steps = self.content(node.inputs[self._step_port]) if len(node.inputs) > self._step_port else (_ONE,)
        if node.op != "Slice" or shape is None or not steps or any(step != _ONE for step in steps):
            return None
        if any(bound is None or len(bound) != len(effect.along) for bound in bounds):
            return None
        whole = shape[axis]
        start, stop = (_position(whole, bound[place]) for bound in bounds if bound is not None)
        if not self._proves:
            # A tensor is as long as the slice asks for.
            return stop - start
        if not stop.is_natural or any(size[place] != Size() for size in bounds[:1] if size is not None):
            return None
        return whole if (stop - whole).is_natural else stop if (whole - stop).is_natural else None

    def top(self, node: Node, value: Value, effect: AxisEffect, axis: int) -> Size | None:  # noqa: ARG002
        """TopK."""
        count = self.content(node.inputs[1])
        return count[0] if count is not None and len(count) == 1 else None

    def part(self, node: Node, value: Value, effect: AxisEffect, axis: int) -> Size | None:  # noqa: ARG002
        """Split into parts of given lengths."""
        if node.op == "Split":
            shape = self.shape(node.inputs[0])
            return divide(shape[axis], Size.constant(len(node.outputs))) if shape is not None else None
        lengths = self.content(node.inputs[-1]) if node.op == "VariadicSplit" and len(node.inputs) > 1 else None
        size = lengths[value.port] if lengths is not None and len(lengths) == len(node.outputs) else None
        return size if size is not None and size.is_natural else None

    def taken(self, node: Node, value: Value, effect: AxisEffect, axis: int) -> Size | None:  # noqa: ARG002
        """Gather: the indices' sizes."""
        indices = self.shape(node.inputs[1])
        return None if indices is None else indices[axis - effect.along[0]]

    def reduced(self, node: Node, value: Value, effect: AxisEffect, axis: int) -> Size:  # noqa: ARG002
        """Reductions that keep their axes."""
        return _ONE

    def padded(self, node: Node, value: Value, effect: AxisEffect, axis: int) -> Size | None:
        """Pad: entries before and after; OpenVINO has an input for each, ONNX one for both."""
        rank, shape = value.rank or 0, self.shape(node.inputs[0])
        pads = [self.content(source) or () for source in node.inputs[1:3]]
        both = pads[0] if len(pads[0]) == 2 * rank else (*pads[0], *pads[-1])
        return shape[axis] + both[axis] + both[axis + rank] if shape is not None and len(both) == 2 * rank else None

    def unknown(self, node: Node, value: Value, effect: AxisEffect, axis: int) -> None:
        """Any size."""

    def copied(self, node: Node, value: Value) -> tuple[Size | None, ...] | None:
        """Broadcast to a shape, which may say 1 where the tensor is larger, but for OpenVINO's mode ``numpy``."""
        shape, target = self.shape(node.inputs[0]), self.content(node.inputs[1])
        if self._proves and node.attributes.get("mode") == "numpy":
            return target
        if self._proves and shape is not None and target is not None and len(shape) == len(target):
            pairs = zip(shape, target, strict=True)
            target = tuple(old if old != _ONE and self._is_kept(old, new) else new for old, new in pairs)
        return self._broadcast([shape, target], value)

    def tiled(self, node: Node, value: Value, effect: AxisEffect, axis: int) -> Size | None:
        """Tile: the same size if there is one copy."""
        shape, repeats = self.shape(node.inputs[0]), self.content(node.inputs[1])
        origin = effect.origins[axis]
        if shape is None or repeats is None or origin is None or len(repeats) != value.rank:
            return None
        return shape[origin] if repeats[axis] == _ONE else None

    def reshape(self, node: Node, value: Value) -> tuple[Size | None, ...] | None:  # noqa: ARG002
        """Reshape: what its target says; 0 copies, -1 is what remains."""
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
            sizes[sizes.index(None)] = _remaining(source, [size for size in sizes if size is not None])
        return tuple(sizes)

    def matmul(self, node: Node, value: Value) -> tuple[Size | None, ...] | None:
        """MatMul of at least two axes each."""
        first, second = (self.shape(source) for source in node.inputs[:2])
        if first is None or second is None or min(len(first), len(second)) < 2:
            return None
        rows, inner = first[:-3:-1] if node.attributes["transpose_a"] else first[-2:]
        other, columns = second[:-3:-1] if node.attributes["transpose_b"] else second[-2:]
        self._classes.join(inner, other)
        batch = self._broadcast([first[:-2], second[:-2]], value, last=2)
        return None if batch is None else (*batch, rows, columns)

    def attended(self, node: Node, value: Value) -> tuple[Size | None, ...] | None:  # noqa: ARG002
        """Attention: the query's sizes, unless the mask may have others."""
        query, key, content = (self.shape(source) for source in node.inputs[:3])
        mask = self.shape(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] is not None else ()
        if query is None or mask is None or len(mask) > len(query):
            return None
        if key and content:
            self._classes.join(key[-2], content[-2])
        padded = (_ONE,) * (len(query) - len(mask)) + mask
        sizes = [size if padded[axis] in {_ONE, size} else None for axis, size in enumerate(query[:-1])]
        return (*sizes, content[-1] if content else None)

    def range(self, node: Node, value: Value) -> tuple[Size | None, ...]:  # noqa: ARG002
        """Range of step 1."""
        start, stop, step = (self.content(source) for source in node.inputs)
        if not start or not stop or not step or step[0] != _ONE or not (stop[0] - start[0]).is_natural:
            return (None,)
        return (stop[0] - start[0],)

    def as_indices(self, node: Node, value: Value) -> Vector | None:  # noqa: ARG002
        """GatherElements: the indices' sizes."""
        return self.shape(node.inputs[1])

    def choice(self, node: Node, value: Value) -> tuple[Size | None, ...] | None:
        """If, in the view of `graphpass.ir.bodies`: the sizes that all branches give alike."""
        shapes = [shape for source in node.inputs[1:] if (shape := self.shape(source)) is not None]
        if self._proves or len(shapes) != len(node.inputs) - 1 or any(len(shape) != value.rank for shape in shapes):
            return None
        return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True))

    def carried(self, node: Node, value: Value) -> Vector | None:  # noqa: ARG002
        """What a loop carries: as large as it starts."""
        return self.shape(node.inputs[0])

    def final(self, node: Node, value: Value) -> Vector | None:
        """What a loop leaves: of the sizes that no iteration changes; others grow by an unknown number."""
        result, *start = (self.shape(source) for source in node.inputs)
        if result is None or not start or start[0] is None or len(start[0]) != len(result):
            return None
        sizes = []
        for axis, (before, after) in enumerate(zip(start[0], result, strict=True)):
            change, grown = after - before, _fresh(value, axis)
            rises = before.as_int is None and change.is_natural
            sizes.append(before if before == after else before + grown if rises else grown)
        return tuple(sizes)

    def iterated(self, node: Node, value: Value, effect: AxisEffect, axis: int) -> Size:
        """A slice that an iteration takes, or all that iterations give, as many as the loop takes slices."""
        if node.op == "Sliced":
            return _ONE
        shape = self.shape(node.inputs[0]) or ()
        turns = self._turns.setdefault(node.called, Size.of((node.called, "turns")))
        return turns if effect.origins[axis] is None or shape[axis] == _ONE else _fresh(value, axis)

    def sliced(self, node: Node, value: Value) -> tuple[Size | None, ...] | None:
        """What a loop takes apart: it has as many iterations as there are slices."""
        shape = self.shape(node.inputs[0])
        if shape is not None:
            self._turns.setdefault(node.called, shape[node.attributes["axis"]])
        return self._by_table(node, value, value.rank or 0)

    def _equate(self, node: Node) -> None:
        """Join the sizes of embeddings that are added, of tokens and of positions: one position a token."""
        if node.op == "Add" and all(self._is_embedding(source) for source in node.inputs):
            first, second = (self.shape(source) for source in node.inputs)
            if first and second:
                self._classes.join(first[-2], second[-2])

    def _is_embedding(self, value: Value | None) -> bool:
        """Whether ``value`` is rows of a table, chosen by an input."""
        if value is None:
            return False
        node = self._graph.producer(self._graph.look_through(value, SAME_ELEMENTS))
        if node.op != "Gather" or node.source().rank != 2:
            return False
        rows = node.source(1).shape
        return rows is not None and len(rows) == 2 and not all(isinstance(size, int) for size in rows)


def _fresh(value: Value, axis: int) -> Size:
    return Size.of((value.node, value.port, axis))


def _position(size: Size, position: Size) -> Size:
    """Return the place that a bound of a Slice names."""
    if position.as_int is not None and position.as_int >= NO_END:
        return size
    return size + position if position.is_negative else position


def _remaining(source: Vector, others: list[Size]) -> Size | None:
    """Return the size that ``others`` lack to hold as many elements as ``source``."""
    kept = list(source)
    for size in list(others):
        if size in kept:
            kept.remove(size)
            others.remove(size)
    if any(size.as_int is None for size in others):
        return None
    product: Size | None = _ONE
    for size in kept:
        product = multiply(product, size) if product is not None else None
    return None if product is None else divide(product, Size.constant(prod(size.as_int or 0 for size in others)))


_RULES: dict[str, Callable[[Sizes, Node, Value], tuple[Size | None, ...] | None]] = {
    "Parameter": Sizes.source,
    "ReadValue": Sizes.source,
    "Concat": Sizes.concat,
    "Reshape": Sizes.reshape,
    "Broadcast": Sizes.copied,
    "MatMul": Sizes.matmul,
    "ScaledDotProductAttention": Sizes.attended,
    "Range": Sizes.range,
    "GatherElements": Sizes.as_indices,
    "If": Sizes.choice,
    "Carried": Sizes.carried,
    "Final": Sizes.final,
    "Sliced": Sizes.sliced,
}

_CHANGES: dict[str, Callable[[Sizes, Node, Value, AxisEffect, int], Size | None]] = {
    "cut": Sizes.cut,
    "top": Sizes.top,
    "part": Sizes.part,
    "take": Sizes.taken,
    "rows": Sizes.taken,
    "copy": Sizes.tiled,
    "reduce": Sizes.reduced,
    "pad": Sizes.padded,
    "product": Sizes.unknown,
    "window": Sizes.unknown,
    "iteration": Sizes.iterated,
}
