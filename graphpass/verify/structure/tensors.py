"""Elements of a model's tensors as expressions: sums are definitions, caches are leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from graphpass.analysis.attention.find import find_sink_gates
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import (
    LIMIT,
    Element,
    Elements,
    Index,
    OperatorTable,
    Request,
    Rule,
    Steps,
    UnknownError,
    done,
)
from graphpass.analysis.symbolic.equal_sizes import as_dimension, dimension, dimension_name
from graphpass.analysis.symbolic.expressions import ZERO, Expr
from graphpass.analysis.symbolic.nodes import Monomial
from graphpass.analysis.symbolic.places import index_along
from graphpass.analysis.symbolic.sizes import Sizes, infer_exact_sizes
from graphpass.analysis.symbolic.solver import never
from graphpass.analysis.symbolic.step import PAST
from graphpass.analysis.symbolic.table import TABLE
from graphpass.dialects.signature import meaning
from graphpass.ir.graph import Node, Value
from graphpass.ir.operators import LOOP_ENTRIES, LOOP_EXITS, RESHAPES, SOURCES, is_foreign
from graphpass.ir.values import INTEGERS, REALS
from graphpass.verify.structure.definition import Definition
from graphpass.verify.structure.definitions import Definitions
from graphpass.verify.structure.leaves import Inputs, Leaf
from graphpass.verify.structure.signs import is_total
from graphpass.verify.structure.sorted_experts import SortedExperts
from graphpass.verify.structure.undefined_rows import guarded_softmax

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.verify.structure.constants import Constants


#: Maximum number of nested sizes that are functions of operands.
_DEEPEST = 8


class DefinedTensors(Elements):
    """Elements of one model's tensors as expressions.

    Attributes:
        definitions: Definitions of both models.
        model: The model.
        sink_gates: Gates that apply attention sinks to the result of a Softmax, by index of the Softmax.
        guarded: Indices of Softmax operators whose NaN is replaced by 0.
        is_candidate: Whether the model is compared with a reference.
    """

    def __init__(
        self, model: Model, table: OperatorTable, inputs: Inputs, definitions: Definitions, constants: Constants
    ) -> None:
        """Prepare the evaluation; no element is computed yet.

        Args:
            model: The model.
            table: Symbolic definitions of operators.
            inputs: Interpretation of the model's inputs.
            definitions: Definitions of both models.
            constants: Elements of large constants.
        """
        super().__init__(model.graph, model.analysis(infer_exact_sizes), table, inputs.lengths, inputs.bits)
        self._sizes: Sizes
        self.definitions, self.model = definitions, model
        self.sink_gates = model.analysis(find_sink_gates)
        self.guarded, self.is_candidate = model.analysis(guarded_softmax), False
        self._sorted = SortedExperts(model, self._sizes)
        self._gated = {gate.node.index: gate for gate in self.sink_gates.values()}
        # The first element of a result evaluates all nodes upstream.
        self.limit = max(LIMIT, 4 * len(model.graph.nodes))
        self._constants, self._inputs, self._leaves = constants, inputs, inputs.leaves
        self._closed: dict[tuple[object, ...], Expr] = {}
        self._makers = self._first_makers()
        self._unsized = set[int]()

    def _first_makers(self) -> dict[Expr, Expr]:
        """Return the first output whose operator has a size rule, for each dimension.

        Equal sizes share one dimension, which may be named after another output, even one downstream.
        """
        makers: dict[Expr, Expr] = {}
        for node in self.graph.nodes:
            for value in node.outputs:
                if node.op not in (self._table.states if value.port else self._table.sizes):
                    continue
                for axis, size in enumerate(self._sizes.shape(value) or ()):
                    if as_dimension(size) is not None:
                        makers.setdefault(size, dimension((node.index, value.port, axis)))
        return makers

    def shape(self, value: Value) -> Index:
        """Return the sizes of ``value``; slices of sorted rows, and their products, count all rows."""
        sizes, rows = super().shape(value), self._sorted.rows.get(value.node)
        return sizes if rows is None else (super().shape(rows)[0], *sizes[1:])

    def _inferred(self, dimension: Expr) -> Expr:
        if dimension in self._sorted.sizes:
            rest = self._sorted.sizes[dimension]
            return self._own_length(dimension) if rest is None else self.size(rest)
        size = super()._inferred(self._makers.get(dimension, dimension))
        if size is not None:
            return size
        nodes = [self.graph.nodes[value.node] for value in self.graph.parameters.values()]
        nodes += [self.graph.nodes[place] for place in self._leaves]
        names = [
            f"size {axis} of {node.name}" if leaf is None else f"size {leaf.order.index(axis)} of {leaf.name}"
            for node in nodes
            if not ((leaf := self._leaves.get(node.index)) and leaf.is_cut)
            for axis, size in enumerate(self._sizes.shape(node.outputs[0]) or ())
            if size is dimension
        ]
        if names:
            return ex.length(min(names))
        size = self._of_function(dimension)
        if size is not None:
            return size
        return self._own_length(dimension)

    def _own_length(self, dimension: Expr) -> Expr:
        """Return a length that is unique to ``dimension``."""
        return self.definitions.length((id(self.graph), dimension_name(dimension)))

    def _of_function(self, dimension: Expr) -> Expr | None:
        """Return the size of an operator without a definition as a function of its operands."""
        name = dimension_name(dimension)
        place, *axis = name if isinstance(name, tuple) else (None,)
        node = self.graph.nodes[place] if isinstance(place, int) else None
        kind = None if node is None or node.op in self._table.elements else kind_of(node, self)
        if node is None or kind is None or self._depth > _DEEPEST:
            return None
        self._depth += 1
        try:
            shapes = tuple(map(self.shape, node.sources))
            bodies = tuple(
                self.definitions.algebra.cases(self.of(value, self.own_index(value, "y"))) for value in node.sources
            )
        except UnknownError:
            return None
        finally:
            self._depth -= 1
        if ex.uses(bodies, "opaque"):
            return None
        return self.definitions.length((kind, *axis, shapes, bodies))

    def assumptions(self, nodes: Iterable[Node], *, tables: bool = False) -> Iterator[tuple[Node, Expr | None, Expr]]:
        """Yield computed sizes that may be 1 where others are broadcast to them.

        Args:
            nodes: Nodes of the model.
            tables: Whether to include slices of axes of fixed size.

        Yields:
            Node, size by the operator's rule, ``None`` without one, and the size that it is assumed to equal.
        """
        fed = self._sorted.rows.keys() | self._inputs.moves.keys()
        for node in nodes:
            if node.op in SOURCES | LOOP_ENTRIES | LOOP_EXITS or node.index in fed:
                continue
            for pair in self._sizes.unequal(node):
                left, right = map(self.size, pair)
                if left is not right:
                    yield node, left, right
            for value in node.outputs:
                for axis, size in self._sizes.assumed(value, tables=tables).items():
                    assumed, known = self.size(size), self._by_rule(node, value, axis)
                    # The caller moves slots in caches that have at least the past.
                    if known is not assumed and not (self._inputs.moves and assumed is PAST):
                        yield node, known, assumed

    def _by_rule(self, node: Node, value: Value, axis: int) -> Expr | None:
        """Return a size by the operator's rule, without assumptions; ``None`` if unknown."""
        rule = (self._table.states if value.port else self._table.sizes).get(node.op)
        try:
            return None if rule is None else rule(self, node, axis)
        except UnknownError:
            return None

    def assume(self, reference: DefinedTensors) -> None:
        """Treat results that rely on assumptions that the reference does not make as unknown.

        These are equal sizes, and queries of which each attends to a key.

        Args:
            reference: Tensors of the reference, which runs at every length.
        """
        self.is_candidate = True
        assumptions = list(reference.assumptions(reference.graph.nodes, tables=True))
        given = {_equation(known, size) for _, known, size in assumptions if known is not None}
        calls = ((reference._call(node), size) for node, known, size in assumptions if known is None)
        undefined = {(call, size) for call, size in calls if call is not None}
        for node, known, size in self.assumptions(node for node in self.graph.nodes if node.index not in self._unsized):
            if known is None:
                is_given = (self._call(node), size) in undefined
            else:
                is_given = _equation(known, size) in given or never(ex.negate(ex.equal(known, size)))
            if not is_given:
                uses = self.graph.forward(node.outputs, lambda use: use.node.outputs)
                self._unsized |= {node.index, *(use.node.index for use in uses)}

    def hide_by_infinity(self, visible: Expr, query: Expr, key: Expr) -> None:
        """Compare a mask that adds -inf with those of the other model.

        Args:
            visible: The condition under which a query attends to a key.
            query: Index of the query.
            key: Index variable of the key.

        Raises:
            UnknownError: Some queries may attend to no key, and have finite results in the reference.
        """
        rows = self.definitions.undefined_rows
        (rows.check if self.is_candidate else rows.add)(visible, query, key)

    def _call(self, node: Node) -> tuple[object, ...] | None:
        """Return operator, attributes and typed shapes of operands; ``None`` without a rank."""
        if any(self._sizes.shape(value) is None for value in node.sources):
            return None
        operands = (None if value is None else (_family(value), self.shape(value)) for value in node.inputs)
        return kind_of(node, self) or node, *operands

    def _start(self, value: Value, index: Index) -> Generator[Request, Expr, Expr]:
        node = self.graph.producer(value)
        if node.index in self._unsized:
            raise UnknownError("its size may be 1 or that of the tensors it is broadcast to")
        if node.index in self._inputs.moves:
            return _same_place(self._inputs.moves[node.index], index)
        gate = self._gated.get(node.index)
        if gate is not None:
            # The rule of Softmax includes the sink.
            return _same_place(gate.result, index)
        of_expert = self._sorted.element(node, index)
        if of_expert is not None:
            return of_expert
        if node.op in SOURCES and node.index in self._leaves:
            leaf = self._leaves[node.index]
            return done(self._leaf(leaf, index, _sort(value)))
        if is_foreign(node) or node.op not in {"Parameter", "Constant", *self._table.elements}:
            return as_function(Element(self, node, value, index), f"operator {node.op} has no symbolic definition")
        return super()._start(value, index)

    def _leaf(self, leaf: Leaf, index: Index, sort: ex.Sort) -> Expr:
        name = leaf.name
        if leaf.selectors and leaf.batch is not None:
            row = index[leaf.batch]
            if row.op == "read" and row.args[0] in leaf.selectors:
                index = (*index[: leaf.batch], row.args[1], *index[leaf.batch + 1 :])
            elif leaf.past is not None:
                raise UnknownError("expected rows of the cache selected by beam_idx")
            else:
                name = f"{name}, rows not selected"

        def element(index: Index) -> Expr:
            # An input that is not a paired cache may have this name, hence the prefix.
            place = leaf.place(index)
            return ex.read(("cache", name), place, sort) if leaf.past is None else leaf.past(place)

        window = leaf.window
        if window is None:
            return element(index)
        result = element(window.shifted(index, -window.first))
        other = ZERO if window.is_filled else ex.read(("cache", f"{name}, further"), leaf.place(index), sort)
        place, end = index[window.axis], window.first + window.count
        inside = ex.conjunction(ex.at_most(ex.number(window.first), place), ex.less(place, ex.number(end)))
        return ex.choose(inside, result, other)

    def _parameter(self, node: Node, value: Value, index: Index) -> Expr:
        if (known := self._inputs.known.get(node.index)) is not None:
            return known if value.rank in {0, 1} or node.index in self._bits else ex.add(known, index[-1])
        return super()._parameter(node, value, index)

    def _constant(self, value: Value, index: Index) -> Expr:
        result = self._constants.element(self.graph, value, index)
        return super()._constant(value, index) if result is None else result

    def stored(self, value: Value) -> Value:
        """Return the value upstream of Reshapes, whose bytes are those of ``value``."""
        return self.graph.look_through(value, RESHAPES | {"Identity"})

    def packed(self, value: Value, bits: int, shape: tuple[int, ...], index: Index) -> Expr:
        """Return an unsigned integer in the bytes of a constant; see `Constants.packed`.

        Args:
            value: Value of the model.
            bits: Bits of an integer, 4 or 8.
            shape: Shape of the integers.
            index: Index of the integer.

        Raises:
            UnknownError: The value is not a readable constant of these integers.
        """
        value = self.stored(value)
        if self.graph.producer(value).op != "Constant" or value.element_type != "u8" or bits not in {4, 8}:
            raise UnknownError(f"{value.name} is not a constant of integers of 4 or 8 bits")
        return self._constants.packed(self.graph, value, bits, shape, index)

    def closed(self, element: Element, define: Callable[[Element], Steps], *, by_part: bool = False) -> Steps:
        """Define a result once as a function of its indices.

        Args:
            element: The element.
            define: The operator's rule.
            by_part: Whether to define a slice of the result separately, because the other model may compute the slice
                alone. The rule must not depend on the sizes of indices then.

        Returns:
            The element.

        Yields:
            Requests of ``define``.
        """
        own = self.own_index(element.value)
        firsts: list[int | None] = [None] * len(own)
        if by_part:
            parts = [_part(index, place) for index, place in zip(own, element.index, strict=True)]
            own = tuple(index if part is None else part[1] for index, part in zip(own, parts, strict=True))
            firsts = [None if part is None else part[0] for part in parts]
        key = element.node.index, element.value.port, own, tuple(firsts)
        if key not in self._closed:
            index = tuple(
                index if first is None else ex.add(index, ex.number(first))
                for index, first in zip(own, firsts, strict=True)
            )
            self._closed[key] = self.definitions.algebra.normal((yield from define(replace(element, index=index))))
        places = {
            index: place if first is None else ex.subtract(place, ex.number(first))
            for index, place, first in zip(own, element.index, firsts, strict=True)
            if index is not ZERO
        }
        result = self._closed[key]
        return result if all(index is place for index, place in places.items()) else ex.substitute(result, places)

    def own_index(self, value: Value, letter: str = "x") -> Index:
        """Return an index variable for each axis of a value; 0 for size 1.

        Args:
            value: Value of the model.
            letter: Prefix of the variables' names, before the number of the axis.
        """
        return tuple(index_along(f"{letter}{axis}", size) for axis, size in enumerate(self.shape(value)))

    def whole(self, value: Value) -> Expr:
        """Return ``value`` as a function of its own indices, in canonical form."""
        return self.definitions.algebra.cases(self.of(value, self.own_index(value)))


def _equation(left: Expr, right: Expr) -> frozenset[tuple[Monomial, int]]:
    """Return the terms of ``left - right``, without a common factor and in one sign."""
    terms = ex.polynomial(ex.subtract(left, right))
    first = min(terms, key=lambda monomial: [atom.order for atom in monomial], default=())
    factor = math.gcd(*terms.values()) * (-1 if terms.get(first, 0) < 0 else 1)
    return frozenset((monomial, count // factor) for monomial, count in terms.items())


def _part(own: Expr, place: Expr) -> tuple[int, Expr] | None:
    """Return start and index variable of the slice that ``place`` reads along an axis.

    Args:
        own: The index variable of the whole axis.
        place: An index into the axis.

    Returns:
        ``None`` if ``place`` is not ``start + index``, or covers the whole axis.
    """
    terms = ex.polynomial(place)
    first = terms.pop((), 0)
    atoms = [monomial[0] for monomial, factor in terms.items() if len(monomial) == 1 and factor == 1]
    if len(terms) != 1 or not atoms or atoms[0].op != "index" or own is ZERO or atoms[0].args[1] is own.args[1]:
        return None
    return first, ex.index(f"{own.args[0]} of part", atoms[0].args[1])


def closed(define: Callable[[Element], Steps], *, by_part: bool = False) -> Rule:
    """Return a rule that defines each result once for all indices; see `DefinedTensors.closed`.

    Args:
        define: The operator's rule.
        by_part: Whether to define slices of the result separately.
    """

    def rule(element: Element) -> Steps:
        tensors = element.elements
        assert isinstance(tensors, DefinedTensors)
        return (yield from tensors.closed(element, define, by_part=by_part))

    return rule


def kind_of(node: Node, tensors: DefinedTensors) -> tuple[str, int] | None:
    """Return a key of operator and attributes; ``None`` if equal operands may give other results.

    Args:
        node: Node of the model.
        tensors: Tensors of the model.
    """
    is_changing = node.op in _CHANGING or "Random" in node.op or "loop" in node.attributes
    return None if is_changing else meaning(node, tensors.model)


def as_function(element: Element, reason: str) -> Steps:
    """Return an element of a result as an uninterpreted function of the operands.

    Args:
        element: The element.
        reason: Message of the error.

    Yields:
        Requests for elements of the operands.

    Raises:
        UnknownError: Results depend on more than the operands.
    """
    tensors, node = element.elements, element.node
    assert isinstance(tensors, DefinedTensors)
    kind = kind_of(node, tensors)
    if kind is None:
        raise UnknownError(reason)

    def define(own: Element) -> Steps:
        bodies: list[Expr] = []
        operands: list[tuple[str, Index] | None] = []
        for value in node.inputs:
            if value is None:
                operands.append(None)
                continue
            operands.append((_family(value), tensors.shape(value)))
            if ex.ZERO not in tensors.shape(value):
                bodies.append((yield value, tensors.own_index(value, "y")))
        # A result may be out of the range of a narrower integer type.
        own_type = own.value.element_type
        result = own_type if own_type in INTEGERS else _family(own.value)
        parameters = (kind, own.value.port, result, tuple(operands))
        bodies = [tensors.definitions.algebra.cases(body) for body in bodies]
        is_partial = node.op not in _TOTAL or not all(map(is_total, bodies))
        return ex.read(Definition(node.op, parameters, tuple(bodies), is_partial), own.index, _sort(own.value))

    return (yield from tensors.closed(element, define))


#: Operators that are defined for all numbers; others without a symbolic definition may be undefined for some.
_TOTAL = frozenset(
    {
        "Elu",
        "FakeQuantize",
        "Hardmax",
        "HSwish",
        "LeakyRelu",
        "MaxPool",
        "Mish",
        "PRelu",
        "ReduceL1",
        "ReduceL2",
        "Round",
    }
) | {op for op in TABLE.elements if op.startswith(("Gather", "Reduce", "Scatter"))}

#: Operators whose results may differ for equal operands.
_CHANGING = SOURCES | {"Assign", "Bernoulli", "Dropout", "Multinomial", "OpaqueConstant"}


def definitions_of(element: Element) -> Definitions:
    """Return the definitions of the element's model."""
    tensors = element.elements
    assert isinstance(tensors, DefinedTensors)
    return tensors.definitions


def _sort(value: Value) -> ex.Sort:
    return "real" if value.element_type in REALS else "int" if value.element_type in INTEGERS else "bool"


def _family(value: Value) -> str:
    """Return a value's type, without precision of activations and positions."""
    return _sort(value) if value.element_type in REALS | {"i32", "i64"} else value.element_type


def _same_place(value: Value, index: Index) -> Generator[Request, Expr, Expr]:
    return (yield value, index)
