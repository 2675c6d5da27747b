"""Infer sizes, and the integers of shape arithmetic, as linear expressions of dimensions.

Assumed sizes of operands that are broadcast to each other are equal if neither is 1; this holds for every model that
runs at more than one length. They suffice to classify caches, regardless of declared shapes. Proven sizes are equal
only if they are equal in every execution that succeeds; passes rewrite by these.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.elements import Elements
from graphpass.analysis.symbolic.equal_sizes import (
    EqualSizes,
    Vector,
    as_dimension,
    dimension,
    dimensions,
    is_linear,
    is_negative,
)
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, add, multiply, number, subtract
from graphpass.analysis.symbolic.nodes import from_polynomial, polynomial
from graphpass.analysis.symbolic.ranks import with_rank, with_ranks
from graphpass.analysis.symbolic.table import TABLE
from graphpass.ir.axes import AxisEffect, axis_effect
from graphpass.ir.cuts import NO_END, cuts
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, MATRIX_PRODUCTS
from graphpass.ir.values import INTEGERS, multiplies_matrices
from graphpass.progress import counting

if TYPE_CHECKING:
    import numpy

#: Most rounds of inference; equalities of one round may prove others in the next. The fixtures need two.
_ROUNDS = 4

#: Most sizes that are recorded as broadcast to one dimension.
_MOST_PARTS = 16

#: Most elements of an integer tensor whose content is inferred.
_LARGEST = 16

_Inferred: TypeAlias = "tuple[Expr | None, ...] | None"


def infer_sizes(model: Model) -> Sizes:
    """Return the assumed sizes of all tensors of ``model``, for `Model.analysis`."""
    return Sizes(model.graph)


@dataclass(frozen=True, slots=True)
class _Change:
    """An axis whose size an operator changes; ``place`` is its index in ``effect.along``."""

    node: Node
    value: Value
    effect: AxisEffect
    axis: int
    place: int


class Sizes:
    """Sizes of a graph's tensors, and the integers of its shape arithmetic.

    ``known`` names dimensions of Parameters and ReadValues by node index and axis. Sizes are proven from these. Without
    ``known``, or with ``assumes``, sizes are assumed: dimensions of equal name are equal, and so are sizes other than 1
    that are broadcast to each other.
    """

    def __init__(
        self, graph: Graph, known: Mapping[tuple[int, int], Hashable] | None = None, *, assumes: bool = False
    ) -> None:
        self._graph = graph
        self._is_ranked = all(value.shape is not None for node in graph.nodes for value in node.outputs)
        self._known = {place: dimension(name) for place, name in (known or {}).items()}
        self._pasts = frozenset(self._known.values())
        self._proves = known is not None and not assumes
        self._equal = EqualSizes()
        self._shapes: dict[tuple[int, int], Vector] = {}
        #: Values with sizes that no rule inferred.
        self._unknown: list[Value] = []
        #: Requested integer tensors with an element that is not linear.
        self._missing: list[Value] = []
        #: The sizes that are broadcast to each dimension.
        self._parts: dict[Expr | None, set[Expr]] = {}
        #: The number of iterations of each loop.
        self._iterations: dict[str, Expr] = {}
        #: Sizes of slices that may exceed the axis, and of the axis, by node and axis.
        self._cut_short: dict[tuple[int, int], tuple[Expr, Expr]] = {}
        self._walk()
        if self._proves:
            self._settle()

    def shape(self, value: Value | None) -> Vector | None:
        """Return the size along each axis; ``None`` if the rank is unknown."""
        shape = None if value is None else self._shapes.get((value.node, value.port))
        return shape if shape is None or not self._equal.joins else tuple([self._equal.resolve(size) for size in shape])

    def assumed(self, value: Value, *, tables: bool = False) -> dict[int, Expr]:
        """Return the assumed sizes of an operator's output, by axis.

        They are equal to others by a broadcast, or those of a slice that is assumed to be within its axis.

        Args:
            value: Output of an operator.
            tables: Whether to include slices of axes of fixed size.
        """
        shape = self._shapes.get((value.node, value.port)) or ()
        own = {axis: size for axis, size in enumerate(shape) if size is _fresh(value, axis)}
        own = {axis: size for axis, size in own.items() if self._equal.is_joined(size)}
        for axis in range(len(shape)):
            size, whole = self._cut_short.get((value.node, axis), (None, None))
            if size is not None and whole is not None and (tables or whole.op != "number"):
                own[axis] = size
        return {axis: self._equal.resolve(size) for axis, size in own.items()}

    def content(self, value: Value | None) -> Vector | None:
        """Return the integers of ``value``, flat; ``None`` if over 16, or if any is unknown."""
        integers = self._integers(value)
        if integers is None or None in integers:
            return None
        return tuple(size for size in integers if size is not None)

    def _integers(self, value: Value | None) -> tuple[Expr | None, ...] | None:
        """Return the integers of a small tensor, each ``None`` if it is not linear."""
        if value is None or value.rank is None or value.element_type not in INTEGERS:
            return None
        counts = [size.as_number for size in self.shape(value) or ((dimension("rank"),) if value.rank else ())]
        if None in counts:
            return None
        if self._graph.producer(value).op == "Constant":
            constant = self._graph.constant(value, _LARGEST)
            return None if constant is None else tuple([number(int(own)) for own in constant.reshape(-1)])
        shape = [int(count or 0) for count in counts]
        if prod(shape) > _LARGEST:
            return None
        places = product(*(map(number, range(size)) for size in shape))
        known = tuple([self._as_size(self._elements.of(value, place)) for place in places])
        if None in known:
            self._missing.append(value)
        return known

    def _as_size(self, element: Expr) -> Expr | None:
        size = self._equal.resolve(element)
        return size if size.sort == "int" and (size.op == "number" or is_linear(size)) else None

    def _walk(self) -> None:
        self._unknown = []
        self._elements = Elements(self._graph, self, TABLE, None)
        with counting("inferring sizes", self._graph.nodes, "operators") as nodes:
            for node in nodes:
                for value in node.outputs:
                    ranked = self._with_ranks(node, value)
                    if ranked is not None:
                        self._shapes[value.node, value.port] = self._shape(*ranked)

    def _settle(self) -> None:
        """Repeat the inference of unknown sizes until it finds no further equality."""
        for _ in range(_ROUNDS):
            joins = self._equal.joins
            for value in self._unknown:
                ranked = self._with_ranks(self._graph.producer(value), value)
                for axis, size in enumerate((ranked and self._inferred(*ranked)) or ()):
                    if size is not None:
                        self._equal.join(_fresh(value, axis), size)
            missing, self._missing = dict.fromkeys(self._missing), []
            if any(self.content(value) is not None for value in missing):
                self._walk()
            elif self._equal.joins == joins:
                break

    def _with_ranks(self, node: Node, value: Value) -> tuple[Node, Value] | None:
        """Return operator and output with inferred ranks; see `with_ranks`."""
        if self._is_ranked:
            return node, value

        def rank(value: Value) -> int | None:
            shape = self._shapes.get((value.node, value.port))
            return None if shape is None else len(shape)

        return with_ranks(node, value, rank, self._count)

    def _count(self, value: Value) -> int | None:
        """Return the number of elements of a vector."""
        shape = self.shape(value)
        size = shape[0].as_number if shape else 1 if shape == () else None
        return size if isinstance(size, int) else None

    def _shape(self, node: Node, value: Value) -> Vector:
        declared = value.shape or ()
        if node.op == "Constant":
            return tuple([number(size) for size in declared if isinstance(size, int)])
        inferred, sizes = self._inferred(node, value) or (None,) * len(declared), []
        for axis, (size, own) in enumerate(zip(inferred, declared, strict=True)):
            if isinstance(own, int):
                known = number(own)
                if size is not None and size.op != "number":
                    self._equal.join(size, known)
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
        effect = self.axis_effect(node, rank)
        if effect is None or "aligns_first" in node.attributes:
            return None
        if effect.kind in {"elementwise", "norm"}:
            return self._broadcast([self.shape(source) for source in node.sources], value)
        shape = self.shape(node.inputs[0])
        if shape is None or any(origin is not None and origin >= len(shape) for origin in effect.origins):
            return None
        sizes: list[Expr | None] = [ONE if origin is None else shape[origin] for origin in effect.origins]
        change = _CHANGES.get(effect.kind)
        if change is not None:
            for place, axis in enumerate(effect.along):
                sizes[axis] = change(self, _Change(node, value, effect, axis, place), shape)
        return tuple(sizes)

    def axis_effect(self, node: Node, rank: int) -> AxisEffect | None:
        """Return the effect of a node on axes, including axes that shape arithmetic computes.

        See `graphpass.ir.axes.axis_effect`.

        Args:
            node: A node of the graph.
            rank: Number of axes of its output.
        """
        return axis_effect(node, rank) or self._along_computed(node, rank)

    def _along_computed(self, node: Node, rank: int) -> AxisEffect | None:
        source = node.inputs[0] if node.inputs else None
        if "axes" in node.attributes or source is None or source.rank is None:
            return None
        if node.op == "Squeeze" and len(node.inputs) == 1:
            sizes = self.shape(source) or ()
            is_fixed = all(size.op == "number" for size in sizes)
            axes: Iterable[int] = [axis for axis, size in enumerate(sizes) if is_fixed and size is ONE]
        elif node.op == "Slice":
            axes = [cut.axis for cut in cuts(node, self._numbers)]
        else:
            numbers = self._numbers(node.inputs[1]) if len(node.inputs) == 2 else None
            axes = () if numbers is None else map(int, numbers)
        known = tuple(axis % max(source.rank, rank, 1) for axis in axes)
        if not known:
            return None
        return axis_effect(replace(node, attributes={**node.attributes, "axes": known}), rank)

    def _broadcast(self, shapes: list[Vector | None], value: Value, last: int = 0) -> _Inferred:
        """Return the sizes of operands broadcast to ``value``, without its ``last`` axes."""
        rank = (value.rank or 0) - last
        known = [shape for shape in shapes if shape is not None and len(shape) <= rank]
        if self._proves and len(known) < len(shapes):
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
        if not self._proves:
            for other in sizes[1:]:
                self._equal.join(first, other)
            return self._equal.resolve(first)
        parts = set(sizes).union(*(self._below(size) for size in sizes))
        self._parts[_fresh(value, axis)] = parts if len(parts) <= _MOST_PARTS else set(sizes)
        return next((size for size in sizes if size.op == "number"), None)

    def _below(self, size: Expr) -> set[Expr]:
        """Return the sizes that are broadcast to ``size``; each equals it or is 1."""
        return {self._equal.resolve(part) for part in self._parts.get(size, ())}

    def _source(self, node: Node) -> _Inferred:
        # Names of an input's dimensions do not prove equality; other values often have one name for all unknown sizes.
        declared = node.outputs[0].shape or ()
        names = declared if node.op == "Parameter" and not self._proves else (None,) * len(declared)
        return tuple(
            self._known.get((node.index, axis), dimension(name) if isinstance(name, str) else None)
            for axis, name in enumerate(names)
        )

    def _concat(self, node: Node) -> _Inferred:
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

    def _broadcast_to(self, node: Node) -> _Inferred:
        """Return a Broadcast's sizes; in modes other than ``numpy``, target sizes may be 1."""
        shape, target = self.shape(node.inputs[0]), self.content(node.inputs[1])
        if self._proves and node.attributes.get("mode") == "numpy":
            return target
        if self._proves and shape is not None and target is not None and len(shape) == len(target):
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

    def _reshape(self, node: Node) -> _Inferred:
        shape, target = self.shape(node.inputs[0]), self.content(node.inputs[1])
        if target is None:
            return None
        source = shape or ()
        sizes: list[Expr | None] = []
        for axis, size in enumerate(target):
            if size is ZERO and node.attributes.get("special_zero", True):
                sizes.append(source[axis] if axis < len(source) else None)
            else:
                sizes.append(size if is_natural(size) or (size is not _REST and not self._proves) else None)
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

    def _matmul(self, node: Node) -> _Inferred:
        first, second = (self.shape(source) for source in node.inputs[:2])
        if first is None or second is None or min(len(first), len(second)) < 2 or not multiplies_matrices(node):
            return None
        rows, inner = first[:-3:-1] if node.attributes["transpose_a"] else first[-2:]
        other, columns = second[:-3:-1] if node.attributes["transpose_b"] else second[-2:]
        self._equal.join(inner, other)
        batch = self._broadcast([first[:-2], second[:-2]], node.outputs[0], last=2)
        return None if batch is None else (*batch, rows, columns)

    def _attention(self, node: Node) -> _Inferred:
        """Return the sizes of the output; ``None`` where the mask may broadcast the query."""
        query, key, content = (self.shape(source) for source in node.inputs[:3])
        mask = self.shape(node.input(3)) if node.input(3) is not None else ()
        if query is None or mask is None or len(mask) > len(query):
            return None
        if key and content:
            self._equal.join(key[-2], content[-2])
            for pair in [] if self._proves else zip(key[:-2], content[:-2], strict=False):
                if ONE not in pair:
                    self._equal.join(*pair)
        padded = (ONE,) * (len(query) - len(mask)) + mask
        sizes = [size if padded[axis] in {ONE, size} else None for axis, size in enumerate(query[:-1])]
        return (*sizes, content[-1] if content else None)

    def _add(self, node: Node) -> _Inferred:
        # Sequences of token embeddings and position embeddings have equal lengths.
        if self._proves and all(self._is_embedding(source) for source in node.inputs):
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

    def _range(self, node: Node) -> _Inferred:
        start, stop, step = (self.content(source) for source in node.inputs)
        if not start or not stop or not step or step[0] is not ONE:
            return None
        count = subtract(stop[0], start[0])
        return (count if is_natural(count) else None,)

    def _filled(self, node: Node) -> _Inferred:
        return self.content(node.inputs[0])

    def _flattened(self, node: Node) -> _Inferred:
        shape, axis = self.shape(node.inputs[0]), node.attributes.get("axis", 1)
        if shape is None:
            return None
        sizes = [reduce(multiply, part, ONE) for part in (shape[:axis], shape[axis:])]
        return tuple(size if is_linear(size) else None for size in sizes)

    def _gathered(self, node: Node) -> _Inferred:
        shape, indices = self.shape(node.inputs[0]), self.shape(node.inputs[1])
        depth = indices[-1].as_number if indices else None
        if shape is None or not indices or not isinstance(depth, int) or node.attributes.get("batch_dims"):
            return None
        return (*indices[:-1], *shape[depth:])

    def _top(self, node: Node) -> _Inferred:
        shape, count, declared = self.shape(node.inputs[0]), self.content(node.inputs[1]), node.outputs[0].shape
        if shape is None or not count or count[0].op != "number" or declared is None:
            return None
        return tuple(None if isinstance(size, int) else shape[axis] for axis, size in enumerate(declared))

    def _choice(self, node: Node) -> _Inferred:
        shapes = [shape for source in node.inputs[1:] if (shape := self.shape(source)) is not None]
        rank = node.outputs[0].rank
        if self._proves or len(shapes) != len(node.inputs) - 1 or any(len(shape) != rank for shape in shapes):
            return None
        return tuple(sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True))

    def _final(self, node: Node) -> _Inferred:
        """Return the sizes after a loop; sizes that iterations change get a new dimension."""
        result, *start = (self.shape(source) for source in node.inputs)
        if result is None or not start or start[0] is None or len(start[0]) != len(result):
            return None
        sizes = []
        for axis, (before, after) in enumerate(zip(start[0], result, strict=True)):
            rises, grown = before.op != "number" and is_natural(subtract(after, before)), _fresh(node.outputs[0], axis)
            sizes.append(before if before is after else add(before, grown) if rises else grown)
        return tuple(sizes)

    def _sliced(self, node: Node) -> _Inferred:
        shape = self.shape(node.inputs[0])
        if shape is not None:
            # The number of iterations is the size of the sliced axis.
            self._iterations.setdefault(node.called, shape[node.attributes["axis"]])
        return self._by_table(node, node.outputs[0])

    def _cut(self, change: _Change, shape: Vector) -> Expr | None:
        inputs, origin = change.node.inputs, change.effect.origins[change.axis] or 0
        whole = shape[origin]
        if isinstance(whole.as_number, int):
            for cut in cuts(change.node, self._numbers):
                if cut.axis % len(shape) == origin and cut.start is not None and cut.stop is not None and cut.step:
                    # With a negative step, a stop before index 0 includes index 0.
                    is_open = cut.step < 0 and cut.stop < -whole.as_number
                    kept = slice(cut.start, None if is_open else cut.stop, cut.step)
                    return number(len(range(*kept.indices(whole.as_number))))
        bounds = [self.content(source) for source in inputs[1:3]]
        port = change.node.attributes.get("steps_port", len(inputs))
        steps = self.content(inputs[port]) if port < len(inputs) else (ONE,)
        if change.node.op != "Slice" or not steps or any(step is not ONE for step in steps):
            return None
        if any(bound is None or len(bound) != len(change.effect.along) for bound in bounds):
            return None
        first, last = (bound[change.place] for bound in bounds if bound is not None)
        stop = _position(whole, last)
        if not self._proves:
            # Assume that the axis is at least as long as the slice.
            size = subtract(stop, _position(whole, first))
            if not is_natural(subtract(whole, stop)):
                self._cut_short[change.value.node, change.axis] = size, whole
            return size
        if first is not ZERO or not is_natural(stop):
            return None
        if is_natural(subtract(stop, whole)):
            return whole
        return stop if is_natural(subtract(whole, stop)) else None

    def _numbers(self, value: Value | None) -> numpy.ndarray | None:
        import numpy

        numbers = [size.as_number for size in self.content(value) or ()]
        return numpy.array(numbers, "int64") if numbers and None not in numbers else None

    def _part(self, change: _Change, shape: Vector) -> Expr | None:
        node = change.node
        if node.op == "Split":
            return _quotient(shape[change.axis], len(node.outputs))
        lengths = self.content(node.inputs[-1]) if len(node.inputs) > 1 else None
        size = lengths[change.value.port] if lengths is not None and len(lengths) == len(node.outputs) else None
        return size if size is not None and is_natural(size) else None

    def _taken(self, change: _Change, shape: Vector) -> Expr | None:  # noqa: ARG002
        indices = self.shape(change.node.inputs[1])
        return None if indices is None else indices[change.place - len(change.effect.along)]

    def _padded(self, change: _Change, shape: Vector) -> Expr | None:
        # OpenVINO's Pad has inputs pads_begin and pads_end, ONNX's one input for both.
        contents = [self._integers(source) for source in change.node.inputs[1:3]]
        pads = [size for content in contents for size in content or ()]
        before, after = (*pads[change.axis :: len(shape)][:2], None, None)[:2]
        return None if before is None or after is None else add(shape[change.axis], before, after)

    def _copied(self, change: _Change, shape: Vector) -> Expr | None:
        repeats, origin = self.content(change.node.inputs[1]), change.effect.origins[change.axis]
        if repeats is None or origin is None or len(repeats) != len(shape):
            return None
        size = multiply(shape[origin], repeats[origin])
        return size if is_linear(size) else None

    def _iterated(self, change: _Change, shape: Vector) -> Expr | None:
        if change.node.op == "Sliced":
            return ONE
        iterations = self._iterations.setdefault(change.node.called, dimension((change.node.called, "iterations")))
        return iterations if change.effect.origins[change.axis] is None or shape[change.axis] is ONE else None


#: Marks the inferred size in the shape of a Reshape.
_REST = number(-1)


def _position(size: Expr, bound: Expr) -> Expr:
    """Return the index that a Slice's bound denotes on an axis of ``size``."""
    value = bound.as_number
    if value is not None and value >= NO_END:
        return size
    return add(size, bound) if is_negative(bound) else bound


def _quotient(size: Expr, by: int) -> Expr | None:
    """Return the exact quotient by an integer; ``None`` if inexact.

    Truncating and flooring division differ for inexact quotients.
    """
    terms = polynomial(size)
    if not by or any(factor % by for factor in terms.values()):
        return None
    return from_polynomial({monomial: factor // by for monomial, factor in terms.items()})


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
    return _quotient(count, prod(int(size.as_number or 0) for size in others))


class NodeSizes(Sizes):
    """Sizes of one operator's outputs, given its operands as arrays."""

    def __init__(self, graph: Graph, operands: Mapping[Value, numpy.ndarray]) -> None:
        """Take sizes and integers from the operands.

        Args:
            graph: The graph.
            operands: Arrays by operand; unknown elements are masked.
        """
        self._graph, self._known, self._pasts, self._proves = graph, {}, frozenset(), True
        self._equal, self._parts, self._iterations, self._cut_short = EqualSizes(), {}, {}, {}
        self._unknown, self._missing = [], []
        self._operands = {(value.node, value.port): array for value, array in operands.items()}
        self._shapes = {place: tuple(map(number, array.shape)) for place, array in self._operands.items()}

    def of_output(self, node: Node, value: Value) -> Vector | None:
        """Return the sizes of an output; ``None`` if any is unknown.

        Args:
            node: The operator, all of whose inputs are known as arrays.
            value: Its output, whose declared shape is used only if the operator does not determine the rank.
        """
        # Ranks that bodies declare may differ in this step.
        inputs = tuple(
            value and replace(value, shape=self._operands[value.node, value.port].shape) for value in node.inputs
        )
        ranked = with_rank(replace(node, inputs=inputs), replace(value, shape=None), self._count)
        ranked = ranked or with_rank(replace(node, inputs=inputs), value, self._count)
        shape = None if ranked is None else self._inferred(*ranked)
        known = tuple(size for size in shape or () if size is not None)
        return known if shape is not None and len(known) == len(shape) else None

    def _integers(self, value: Value | None) -> tuple[Expr | None, ...] | None:
        import numpy

        array = None if value is None else self._operands.get((value.node, value.port))
        if array is None or array.size > _LARGEST or array.dtype.kind not in "iu":
            return None
        hidden, numbers = numpy.ma.getmaskarray(array).flat, numpy.ma.getdata(array).flat
        return tuple(None if is_hidden else number(int(own)) for own, is_hidden in zip(numbers, hidden, strict=True))


def _fresh(value: Value, axis: int) -> Expr:
    return dimension((value.node, value.port, axis))


_RULES: dict[str, Callable[[Sizes, Node], _Inferred]] = {
    "Parameter": Sizes._source,
    "ReadValue": Sizes._source,
    "Add": Sizes._add,
    "Concat": Sizes._concat,
    "Reshape": Sizes._reshape,
    "Broadcast": Sizes._broadcast_to,
    **dict.fromkeys(MATRIX_PRODUCTS, Sizes._matmul),
    "ScaledDotProductAttention": Sizes._attention,
    "ConstantOfShape": Sizes._filled,
    "Flatten": Sizes._flattened,
    "GatherND": Sizes._gathered,
    "Range": Sizes._range,
    "GatherElements": lambda sizes, node: sizes.shape(node.inputs[1]),
    "TopK": Sizes._top,
    "If": Sizes._choice,
    "Final": Sizes._final,
    "Sliced": Sizes._sliced,
}

#: Size of a changed axis by kind of effect; other kinds keep the input's size.
_CHANGES: dict[str, Callable[[Sizes, _Change, Vector], Expr | None]] = {
    "cut": Sizes._cut,
    "part": Sizes._part,
    "take": Sizes._taken,
    "rows": Sizes._taken,
    "reduce": lambda *_: ONE,
    "pad": Sizes._padded,
    "copy": Sizes._copied,
    "product": lambda *_: None,
    "window": lambda *_: None,
    "iteration": Sizes._iterated,
}
