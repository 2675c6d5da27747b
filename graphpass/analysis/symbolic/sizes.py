"""Infer sizes, and the integers of shape arithmetic, as linear expressions of dimensions.

Assumed sizes of operands that are broadcast to each other are equal if neither is 1; this holds for every model that
runs at more than one length. They suffice to classify caches, regardless of declared shapes. Proven sizes are equal
only if they are equal in every execution that succeeds; passes rewrite by these.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from itertools import product
from math import prod

from graphpass.analysis.symbolic.elements import Elements
from graphpass.analysis.symbolic.equal_sizes import Vector, as_dimension, dimension, dimension_name, is_linear
from graphpass.analysis.symbolic.expressions import Expr, number, substitute
from graphpass.analysis.symbolic.nodes import walk
from graphpass.analysis.symbolic.operand_sizes import LARGEST, Inferred
from graphpass.analysis.symbolic.ranks import with_ranks
from graphpass.analysis.symbolic.size_rules import SizeRules, fresh
from graphpass.analysis.symbolic.table import TABLE
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.values import INTEGERS
from graphpass.progress import counting

#: Maximum number of rounds of inference; equalities of one round may prove others in the next. The fixtures need two.
_ROUNDS = 4


def infer_sizes(model: Model) -> Sizes:
    """Return the assumed sizes of all tensors of ``model``, for `Model.analysis`."""
    return Sizes(model.graph)


def infer_exact_sizes(model: Model) -> Sizes:
    """Return assumed sizes except of slices that may begin outside of their axis, for `Model.analysis`."""
    assumed = model.analysis(infer_sizes)
    return Sizes(model.graph, is_exact=True) if assumed.has_outer_cuts else assumed


class Sizes(SizeRules):
    """Sizes of a graph's tensors, and the integers of its shape arithmetic.

    ``known`` names dimensions of Parameters and ReadValues by node index and axis. Sizes are proven from these. Without
    ``known``, or with ``assumes``, sizes are assumed: dimensions of equal name are equal, and so are sizes other than 1
    that are broadcast to each other. With ``is_exact``, slices that may begin outside of their axis, such as
    ``x[-4:]``, have an unknown size.
    """

    def __init__(
        self,
        graph: Graph,
        known: Mapping[tuple[int, int], Hashable] | None = None,
        *,
        assumes: bool = False,
        is_exact: bool = False,
    ) -> None:
        dimensions = {place: dimension(name) for place, name in (known or {}).items()}
        super().__init__(graph, dimensions, proves=known is not None and not assumes)
        self.is_exact = is_exact
        self._is_ranked = all(value.shape is not None for node in graph.nodes for value in node.outputs)
        #: Values with sizes that no rule inferred.
        self._unknown: list[Value] = []
        #: Requested integer tensors with an element that is not linear.
        self._missing: list[Value] = []
        self._walk()
        if self.proves:
            self._settle()

    def assumed(self, value: Value, *, tables: bool = False) -> dict[int, Expr]:
        """Return the assumed sizes of an operator's output, by axis.

        They are equal to others by a broadcast, or those of a slice that is assumed to be within its axis.

        Args:
            value: Output of an operator.
            tables: Whether to include slices of axes of fixed size.
        """
        shape = self._shapes.get((value.node, value.port)) or ()
        own = {axis: size for axis, size in enumerate(shape) if size is fresh(value, axis)}
        own = {axis: size for axis, size in own.items() if self._equal.is_joined(size)}
        for axis in range(len(shape)):
            size, whole = self.cut_short.get((value.node, axis), (None, None))
            if size is not None and whole is not None and (tables or whole.op != "number"):
                own[axis] = size
        return {axis: self._equal.resolve(size) for axis, size in own.items()}

    def includes(self, other: Sizes, values: Mapping[Value, Value]) -> bool:
        """Return whether equalities in another graph, of dimensions that both have, hold in this one.

        Args:
            other: Sizes of the other graph.
            values: Values of this graph by the other's.
        """
        places = [(value, axis) for value in values for axis in range(value.rank or 0)]
        same = {fresh(value, axis): fresh(values[value], axis) for value, axis in places}

        def is_shared(part: Expr) -> bool:
            return part in same or not isinstance(dimension_name(part), tuple)

        pairs = [pair for pair in other._equal.pairs() if is_shared(pair[0])]
        if not all(is_shared(part) for _, size in pairs for part in walk(size) if as_dimension(part) is not None):
            return False
        own = [[self._equal.resolve(substitute(size, same)) for size in pair] for pair in pairs]
        return all(left is right for left, right in own)

    def unequal(self, node: Node) -> Iterator[tuple[Expr, Expr]]:
        """Yield sizes that ``node`` broadcasts to each other, and that no assumption makes equal."""
        for pair in self._pairs.get(node.index, ()):
            left, right = map(self._equal.resolve, pair)
            if left is not right:
                yield left, right

    def integers(self, value: Value | None) -> Inferred:
        """Return the integers of a small tensor, each ``None`` if it is not linear."""
        if value is None or value.rank is None or value.element_type not in INTEGERS:
            return None
        counts = [size.as_number for size in self.shape(value) or ((dimension("rank"),) if value.rank else ())]
        if None in counts:
            return None
        if self._graph.producer(value).op == "Constant":
            constant = self._graph.constant(value, LARGEST)
            return None if constant is None else tuple([number(int(own)) for own in constant.reshape(-1)])
        shape = [int(count or 0) for count in counts]
        if prod(shape) > LARGEST:
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
                        self._equal.join(fresh(value, axis), size)
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

    def _shape(self, node: Node, value: Value) -> Vector:
        declared = value.shape or ()
        if node.op == "Constant":
            return tuple([number(size) for size in declared if isinstance(size, int)])
        inferred, sizes = self._inferred(node, value) or (None,) * len(declared), []
        for axis, (size, own) in enumerate(zip(inferred, declared, strict=True)):
            # A declaration that contradicts the operator is stale; runtimes ignore it.
            if isinstance(own, int) and (size is None or size.op != "number"):
                known = number(own)
                if size is not None:
                    self._equal.join(size, known)
                sizes.append(known)
            else:
                sizes.append(fresh(value, axis) if size is None else size)
        if self.proves and None in inferred:
            self._unknown.append(value)
        return tuple(sizes)
