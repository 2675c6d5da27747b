"""Rules for the sizes of an operator's outputs, from sizes and integers of operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from math import prod

from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.equal_sizes import Vector, as_dimension, dimension, dimensions, is_linear
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, add, multiply, number, subtract
from graphpass.analysis.symbolic.operand_sizes import Inferred, OperandSizes
from graphpass.analysis.symbolic.size_changes import CHANGES, AxisChange, quotient
from graphpass.ir.axes import AxisEffect, axis_effect
from graphpass.ir.cuts import cuts
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import CASTS, MATRIX_PRODUCTS
from graphpass.ir.values import multiplies_matrices

#: Maximum number of sizes that are recorded as broadcast to one dimension.
_MOST_PARTS = 16


class SizeRules(OperandSizes):
    """Sizes of tensors, and the rules that infer them from those of operands."""

    def __init__(self, graph: Graph, known: Mapping[tuple[int, int], Expr], *, proves: bool) -> None:
        """Start without sizes.

        Args:
            graph: The graph.
            known: Dimensions of Parameters and ReadValues, by node index and axis.
            proves: See the attribute of `OperandSizes`.
        """
        super().__init__(graph, known, proves=proves)
        self._pasts = frozenset(known.values())
        #: The sizes that are broadcast to each dimension.
        self._parts: dict[Expr | None, set[Expr]] = {}
        #: Sizes that are broadcast to each other, by node.
        self._pairs: dict[int, list[tuple[Expr, Expr]]] = {}

    def axis_effect(self, node: Node, rank: int) -> AxisEffect | None:
        """Return the effect of a node on axes, including axes that shape arithmetic computes.

        See `graphpass.ir.axes.axis_effect`.

        Args:
            node: A node of the graph.
            rank: Number of axes of its output.
        """
        return axis_effect(node, rank) or self._along_computed(node, rank)

    def _inferred(self, node: Node, value: Value) -> Inferred:
        rule, start = _RULES.get(node.op), node.attributes.get("kept", {}).get(value.port)
        if start is not None:
            return self.shape(node.inputs[start])
        sizes = rule(self, node) if rule is not None else self._by_table(node, value)
        return sizes if sizes is not None and len(sizes) == value.rank else None

    def _by_table(self, node: Node, value: Value) -> Inferred:
        rank = value.rank or 0
        effect = self.axis_effect(node, rank)
        if effect is None or "aligns_first" in node.attributes:
            return None
        if effect.kind in {"elementwise", "norm"}:
            return self._broadcast([self.shape(source) for source in node.sources], value)
        shape = self.shape(node.inputs[0])
        if shape is None or any(origin is not None and origin >= len(shape) for origin in effect.origins):
            return None
        if any(axis >= len(effect.origins) for axis in effect.along):
            return None
        sizes: list[Expr | None] = [ONE if origin is None else shape[origin] for origin in effect.origins]
        change = CHANGES.get(effect.kind)
        if change is not None:
            for place, axis in enumerate(effect.along):
                sizes[axis] = change(self, AxisChange(node, value, effect, axis, place), shape)
        return tuple(sizes)

    def _along_computed(self, node: Node, rank: int) -> AxisEffect | None:
        source = node.inputs[0] if node.inputs else None
        if "axes" in node.attributes or source is None or source.rank is None:
            return None
        if node.op == "Squeeze" and len(node.inputs) == 1:
            sizes = self.shape(source) or ()
            is_fixed = all(size.op == "number" for size in sizes)
            axes: Iterable[int] = [axis for axis, size in enumerate(sizes) if is_fixed and size is ONE]
        elif node.op == "Slice":
            axes = [cut.axis for cut in cuts(node, self.numbers)]
        else:
            numbers = self.numbers(node.inputs[1]) if len(node.inputs) == 2 else None
            axes = () if numbers is None else map(int, numbers)
        known = tuple(axis % max(source.rank, rank, 1) for axis in axes)
        if not known:
            return None
        return axis_effect(replace(node, attributes={**node.attributes, "axes": known}), rank)

    def _broadcast(self, shapes: list[Vector | None], value: Value, last: int = 0) -> Inferred:
        """Return the sizes of operands broadcast to ``value``, without its ``last`` axes."""
        rank = (value.rank or 0) - last
        known = [shape for shape in shapes if shape is not None and len(shape) <= rank]
        if self.proves and len(known) < len(shapes):
            return None
        result: list[Expr | None] = []
        for axis in range(rank):
            sizes = [shape[axis - rank] for shape in known if rank - axis <= len(shape)]
            sizes = [size for size in sizes if size is not ONE]
            if not sizes and len(known) < len(shapes):
                return None
            result.append(self._combined(sizes, value, axis) if sizes else ONE)
        return tuple(result)

    def _combined(self, sizes: list[Expr], value: Value, axis: int) -> Expr | None:
        first = sizes[0]
        if all(size is first for size in sizes):
            return first
        if not self.proves:
            for other in sizes[1:]:
                self._equal.join(first, other)
                self._pairs.setdefault(value.node, []).append((first, other))
            return self._equal.resolve(first)
        parts = set(sizes).union(*(self._below(size) for size in sizes))
        self._parts[fresh(value, axis)] = parts if len(parts) <= _MOST_PARTS else set(sizes)
        return next((size for size in sizes if size.op == "number"), None)

    def _below(self, size: Expr) -> set[Expr]:
        """Return the sizes that are broadcast to ``size``; each equals it or is 1."""
        return {self._equal.resolve(part) for part in self._parts.get(size, ())}

    def _source(self, node: Node) -> Inferred:
        # Names of an input's dimensions do not prove equality; other values often have one name for all unknown sizes.
        declared = node.outputs[0].shape or ()
        names = declared if node.op == "Parameter" and not self.proves else (None,) * len(declared)
        return tuple(
            self._known.get((node.index, axis), dimension(name) if isinstance(name, str) else None)
            for axis, name in enumerate(names)
        )

    def _concat(self, node: Node) -> Inferred:
        shapes = [shape for source in node.inputs if (shape := self.shape(source)) is not None]
        rank = node.outputs[0].rank or 0
        if len(shapes) != len(node.inputs) or any(len(shape) != rank for shape in shapes):
            return None
        result = []
        for axis, sizes in enumerate(zip(*shapes, strict=True)):
            is_joined = axis == node.attributes["axis"]
            for other in () if is_joined else sizes[1:]:
                self._equal.join(sizes[0], other)
            result.append(add(*sizes) if is_joined else sizes[0])
        return tuple(result)

    def _broadcast_to(self, node: Node) -> Inferred:
        """Return a Broadcast's sizes; in modes other than ``numpy``, target sizes may be 1."""
        shape, target = self.shape(node.inputs[0]), self.content(node.inputs[1])
        if len(node.inputs) > 2 or (self.proves and node.attributes.get("mode") == "numpy"):
            # Input 2 maps the axes, which are not aligned to the last ones.
            return target
        if self.proves and shape is not None and target is not None and len(shape) == len(target):
            # Exporters do not broadcast axes of size 1 to a sum of lengths: the axis already has that size.
            for old, new in zip(shape, target, strict=True):
                # Sums that share a past are not 1 if the past is not empty.
                if min(len(dimensions(old)), len(dimensions(new))) > 1 and self._shares_past(old, new):
                    self._equal.join(old, new)
            target = tuple(
                old if old is not ONE and (len(dimensions(new)) > 1 or new in self._below(old)) else new
                for old, new in zip(shape, target, strict=True)
            )
        return self._broadcast([shape, target], node.outputs[0])

    def _shares_past(self, left: Expr, right: Expr) -> bool:
        return not {past for past, _ in dimensions(left)}.isdisjoint(
            past for past, _ in dimensions(right) if past in self._pasts
        )

    def _reshape(self, node: Node) -> Inferred:
        shape, target = self.shape(node.inputs[0]), self.integers(node.inputs[1])
        if target is None:
            return None
        source = shape or ()
        sizes: list[Expr | None] = []
        for axis, size in enumerate(target):
            if size is None:
                sizes.append(None)  # a product of dimensions, for example
            elif size is ZERO and node.attributes.get("special_zero", True):
                sizes.append(source[axis] if axis < len(source) else None)
            else:
                sizes.append(size if is_natural(size) or (size is not _REST and not self.proves) else None)
        if target.count(_REST) == 1 and sizes.count(None) == 1 and shape is not None:
            sizes[sizes.index(None)] = _remaining(source, [size for size in sizes if size is not None])
        elif None not in sizes:
            self._join_remaining(source, [size for size in sizes if size is not None])
        return tuple(sizes)

    def _join_remaining(self, source: Vector, target: list[Expr]) -> None:
        """Record equality of the only two sizes that differ before and after a Reshape."""
        kept, others = list(source), []
        for size in target:
            # A past may be 0: equal products then do not imply equal sizes.
            if size in kept and as_dimension(size) not in self._pasts:
                kept.remove(size)
            else:
                others.append(size)
        sides = [[size for size in side if size.op != "number"] for side in (kept, others)]
        counts = [prod(int(size.as_number or 1) for size in side) for side in (kept, others)]
        if [len(side) for side in sides] == [1, 1] and counts[0] == counts[1]:
            self._equal.join(sides[0][0], sides[1][0])

    def _matmul(self, node: Node) -> Inferred:
        first, second = (self.shape(source) for source in node.inputs[:2])
        if first is None or second is None or min(len(first), len(second)) < 2 or not multiplies_matrices(node):
            return None
        rows, inner = first[:-3:-1] if node.attributes["transpose_a"] else first[-2:]
        other, columns = second[:-3:-1] if node.attributes["transpose_b"] else second[-2:]
        self._equal.join(inner, other)
        batch = self._broadcast([first[:-2], second[:-2]], node.outputs[0], last=2)
        return None if batch is None else (*batch, rows, columns)

    def _attention(self, node: Node) -> Inferred:
        """Return the sizes of the output; ``None`` where the mask may broadcast the query."""
        query, key, content = (self.shape(source) for source in node.inputs[:3])
        mask = self.shape(node.input(3)) if node.input(3) is not None else ()
        if query is None or mask is None or len(mask) > len(query):
            return None
        if key and content:
            self._equal.join(key[-2], content[-2])
            for pair in [] if self.proves else zip(key[:-2], content[:-2], strict=False):
                if ONE not in pair:
                    self._equal.join(*pair)
        if key and mask and not self.proves and ONE not in (key[-2], mask[-1]):
            self._equal.join(key[-2], mask[-1])
        padded = (ONE,) * (len(query) - len(mask)) + mask
        sizes = [size if padded[axis] in {ONE, size} else None for axis, size in enumerate(query[:-1])]
        return (*sizes, content[-1] if content else None)

    def _scattered(self, node: Node) -> Inferred:
        """Return the data's sizes; updates are assumed to span all axes but the indexed one."""
        shape, updates = self.shape(node.inputs[0]), self.shape(node.inputs[2])
        axis = node.attributes.get("axis")
        if shape is not None and updates is not None and axis is not None and not self.proves:
            for place, (size, written) in enumerate(zip(shape, updates, strict=False)):
                if place != axis % len(shape) and as_dimension(size) is not None and written.op == "number":
                    self._equal.join(size, written)
        return shape

    def _add(self, node: Node) -> Inferred:
        # Sequences of token embeddings and position embeddings have equal lengths.
        if self.proves and all(self._is_embedding(source) for source in node.inputs):
            first, second = (self.shape(source) for source in node.inputs)
            if first and second:
                self._equal.join(first[-2], second[-2])
        return self._by_table(node, node.outputs[0])

    def _is_embedding(self, value: Value | None) -> bool:
        node = self._graph.producer(self._graph.look_through(value, CASTS)) if value is not None else None
        if node is None or node.op != "Gather" or node.source().rank != 2:
            return False
        rows = node.source(1).shape or ()
        return len(rows) == 2 and not all(isinstance(size, int) for size in rows)

    def _range(self, node: Node) -> Inferred:
        start, stop, step = (self.content(source) for source in node.inputs)
        if not start or not stop or not step or step[0] is not ONE:
            return None
        count = subtract(stop[0], start[0])
        return (count if is_natural(count) else None,)

    def _filled(self, node: Node) -> Inferred:
        return self.content(node.inputs[0])

    def _flattened(self, node: Node) -> Inferred:
        shape, axis = self.shape(node.inputs[0]), node.attributes.get("axis", 1)
        if shape is None:
            return None
        sizes = [reduce(multiply, part, ONE) for part in (shape[:axis], shape[axis:])]
        return tuple(size if is_linear(size) else None for size in sizes)

    def _gathered(self, node: Node) -> Inferred:
        shape, indices = self.shape(node.inputs[0]), self.shape(node.inputs[1])
        depth = indices[-1].as_number if indices else None
        if shape is None or not indices or not isinstance(depth, int) or node.attributes.get("batch_dims"):
            return None
        return (*indices[:-1], *shape[depth:])

    def _top(self, node: Node) -> Inferred:
        shape, count, declared = self.shape(node.inputs[0]), self.content(node.inputs[1]), node.outputs[0].shape
        if shape is None or not count or count[0].op != "number" or declared is None:
            return None
        return tuple(None if isinstance(size, int) else shape[axis] for axis, size in enumerate(declared))

    def _choice(self, node: Node) -> Inferred:
        shapes = [shape for source in node.inputs[1:] if (shape := self.shape(source)) is not None]
        rank = node.outputs[0].rank
        if (
            "joins" not in node.attributes
            or self.proves
            or len(shapes) != len(node.inputs) - 1
            or any(len(shape) != rank for shape in shapes)
        ):
            return None
        return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True))

    def _final(self, node: Node) -> Inferred:
        """Return the sizes after a loop; sizes that iterations change get a new dimension."""
        result, *start = (self.shape(source) for source in node.inputs)
        if result is None or not start or start[0] is None or len(start[0]) != len(result):
            return None
        sizes = []
        for axis, (before, after) in enumerate(zip(start[0], result, strict=True)):
            rises, grown = before.op != "number" and is_natural(subtract(after, before)), fresh(node.outputs[0], axis)
            sizes.append(before if before is after else add(before, grown) if rises else grown)
        return tuple(sizes)

    def _sliced(self, node: Node) -> Inferred:
        shape = self.shape(node.inputs[0])
        if shape is not None:
            # The number of iterations is the size of the sliced axis.
            self.iterations.setdefault(node.called, shape[node.attributes["axis"]])
        return self._by_table(node, node.outputs[0])


#: Marks the inferred size in the shape of a Reshape.
_REST = number(-1)


def _remaining(source: Vector, others: list[Expr]) -> Expr | None:
    """Return the size inferred by a Reshape of ``source`` whose other sizes are ``others``."""
    kept = list(source)
    for size in list(others):
        if size in kept:
            kept.remove(size)
            others.remove(size)
    count = reduce(multiply, kept, ONE)
    if any(size.op != "number" for size in others) or not is_linear(count):
        return None
    return quotient(count, prod(int(size.as_number or 0) for size in others))


def fresh(value: Value, axis: int) -> Expr:
    """Return the dimension of an output whose size is unknown.

    Args:
        value: The output.
        axis: The axis.
    """
    return dimension((value.node, value.port, axis))


_RULES: dict[str, Callable[[SizeRules, Node], Inferred]] = {
    "Parameter": SizeRules._source,
    "ReadValue": SizeRules._source,
    "Add": SizeRules._add,
    "Concat": SizeRules._concat,
    "Reshape": SizeRules._reshape,
    "Broadcast": SizeRules._broadcast_to,
    **dict.fromkeys(MATRIX_PRODUCTS, SizeRules._matmul),
    "ScaledDotProductAttention": SizeRules._attention,
    "ScatterElementsUpdate": SizeRules._scattered,
    "ConstantOfShape": SizeRules._filled,
    "Flatten": SizeRules._flattened,
    "GatherND": SizeRules._gathered,
    "Range": SizeRules._range,
    "GatherElements": lambda sizes, node: sizes.shape(node.inputs[1]),
    "TopK": SizeRules._top,
    "If": SizeRules._choice,
    "Final": SizeRules._final,
    "Sliced": SizeRules._sliced,
}
