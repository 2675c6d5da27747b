"""Derive elements of a graph's tensors as expressions, operator by operator, without recursion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.constants import constant_element
from graphpass.analysis.symbolic.equal_sizes import Vector, dimension_name, dimensions, offset
from graphpass.analysis.symbolic.expressions import (
    ONE,
    ZERO,
    Expr,
    add,
    choose,
    equal,
    length,
    make,
    multiply,
    number,
    read,
    subtract,
    walk,
)
from graphpass.analysis.symbolic.nodes import Identity
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss
from graphpass.ir.operators import is_foreign
from graphpass.ir.values import INTEGERS, REALS

Index: TypeAlias = "tuple[Expr, ...]"

Request: TypeAlias = "tuple[Value, Index]"
"""A tensor, and the index of the element that a rule requests."""

Steps: TypeAlias = "Generator[Request, Expr, Expr]"
"""Requests elements of operands, and returns the element of the output."""

Rule: TypeAlias = "Callable[[Element], Steps]"

#: Maximum number of elements that one element depends on; masks of exports have up to 300.
LIMIT = 4000

#: Maximum number of elements of a vector of bounds, axes or sizes.
_MOST_INTEGERS = 16

#: Maximum number of nested derivations of sizes that `Sizes` does not infer.
_DEEPEST = 16


#: Reason of elements of operators whose operands have another rank or size than their definition requires.
_MALFORMED = "its operands contradict its definition"

#: Reason of elements that depend on numbers beyond the range of f64.
_TOO_LARGE = "a constant expression exceeds the range of f64"


class UnknownError(Exception):
    """The reason why an operator's element is unknown."""


class RuleTensors(Protocol):
    """The graph and the sizes of tensors that rules read."""

    graph: Graph

    def shape(self, value: Value) -> Index:
        """Return the sizes of an input or output."""


class Shapes(Protocol):
    """Sizes of a graph's tensors."""

    def shape(self, value: Value | None) -> Vector | None:
        """Return the size along each axis; ``None`` if the rank is unknown."""


@dataclass(frozen=True, slots=True)
class Element:
    """The element of an output that a rule derives.

    Attributes:
        elements: The graph and the sizes of its tensors.
        node: The operator.
        value: Its output.
        index: Index of the element in the output.
    """

    elements: RuleTensors
    node: Node
    value: Value
    index: Index

    def shape(self, port: int) -> Index:
        """Return the sizes of input ``port``."""
        return self.elements.shape(self.node.source(port))

    @property
    def own_shape(self) -> Index:
        """Return the sizes of the output."""
        return self.elements.shape(self.value)

    def index_with(self, axis: int, place: Expr) -> Index:
        """Return the index with one axis replaced.

        Args:
            axis: Axis of the output, 0 or more.
            place: Index along ``axis``.
        """
        return (*self.index[:axis], place, *self.index[axis + 1 :])

    def broadcast(self, port: int) -> Request:
        """Return the element of input ``port`` that numpy's broadcasting selects.

        Raises:
            UnknownError: The input has more axes than the result, or the operator broadcasts otherwise.
        """
        if "aligns_first" in self.node.attributes:
            raise UnknownError("its auto_broadcast is pdpd")
        sizes, own = self.shape(port), self.own_shape
        start = len(own) - len(sizes)
        if start < 0:
            raise UnknownError("an operand has more axes than the result")
        places = zip(sizes, own[start:], self.index[start:], strict=True)
        return self.node.source(port), tuple(
            place if size is result else aligned(place, size) for size, result, place in places
        )

    def integers(self, port: int) -> Generator[Request, Expr, tuple[Expr, ...]]:
        """Request all integers of a small scalar or vector.

        Returns:
            The integers; one for a scalar.

        Yields:
            Requests for the elements.

        Raises:
            UnknownError: It is neither a scalar nor a short vector of known size.
        """
        value, sizes = self.node.source(port), self.shape(port)
        count = sizes[0].as_number if sizes else 1
        if len(sizes) > 1 or not isinstance(count, int) or count > _MOST_INTEGERS:
            raise UnknownError(f"its input {value.name} is not a scalar or a short vector of known size")
        numbers = []
        for place in range(count):
            numbers.append((yield value, (number(place),) if sizes else ()))
        return tuple(numbers)

    def axes(self, port: int = 1) -> Generator[Request, Expr, tuple[int, ...]]:
        """Return axes from attribute ``axes`` or from input ``port``.

        Yields:
            Requests for the elements of the input.

        Raises:
            UnknownError: The axes are not constant.
        """
        axes = self.node.attributes.get("axes")
        if axes is not None:
            return tuple(axes)
        numbers = [expr.as_number for expr in (yield from self.integers(port))]
        if not all(isinstance(axis, int) for axis in numbers):
            raise UnknownError("its axes are not constant")
        return tuple(int(axis or 0) for axis in numbers)


def aligned(place: Expr, size: Expr) -> Expr:
    """Return the index along an operand's axis that broadcasting reads.

    Args:
        place: Index along the axis of the result.
        size: Size of the operand's axis; the index is 0 where it is 1.
    """
    if size is ONE or is_natural(subtract(subtract(size, ONE), place)):
        return ZERO if size is ONE else place
    return choose(equal(size, ONE), ZERO, place)


@dataclass(frozen=True, slots=True)
class OperatorTable:
    """Symbolic definitions of operators, by operator name.

    Attributes:
        elements: Rules for an element of an output.
        sizes: Rules for the size of an axis of the first output that `Sizes` does not infer.
        states: Rules for the size of an axis of further outputs.
    """

    elements: Mapping[str, Rule]
    sizes: Mapping[str, Callable[[Elements, Node, int], Expr | None]]
    states: Mapping[str, Callable[[Elements, Node, int], Expr | None]] = field(default_factory=dict)


class Elements:
    """Elements of one graph's tensors; each is derived once.

    Attributes:
        limit: Most elements that one element depends on.
        misses: Node and reason of each opaque element.
    """

    limit = LIMIT

    def __init__(
        self,
        graph: Graph,
        sizes: Shapes,
        table: OperatorTable,
        lengths: Mapping[Expr, Expr] | None,
        bits: frozenset[int] = frozenset(),
    ) -> None:
        """Create an object without derived elements.

        Args:
            graph: The graph.
            sizes: Sizes of its tensors.
            table: Definitions of operators.
            lengths: Expressions of dynamic dimensions; further dimensions become lengths of the same name. ``None``
                keeps dimensions unchanged.
            bits: Node indices of Parameters whose elements are 0 or 1: padding masks.
        """
        self.graph = graph
        self._sizes = sizes
        self._table = table
        self._lengths = None if lengths is None else dict(lengths)
        self._sizes_known: dict[Expr, Expr] = {}
        self._bits = bits
        self._known: dict[Request, Expr] = {}
        self._shapes: dict[Value, Index] = {}
        self.misses: dict[Expr, Miss] = {}
        self._depth = 0

    def size(self, size: Expr) -> Expr:
        """Return a size as an expression of the step's lengths."""
        if self._lengths is None or size.op == "number":
            return size
        if size not in self._sizes_known:
            total = number(offset(size))
            for dimension, factor in dimensions(size):
                if dimension not in self._lengths:
                    name = f"dimension {dimension_name(dimension)}"
                    self._lengths[dimension] = self._inferred(dimension) or length(name)
                total = add(total, multiply(number(factor), self._lengths[dimension]))
            self._sizes_known[size] = total
        return self._sizes_known[size]

    def _inferred(self, dimension: Expr) -> Expr | None:
        """Return a size that `Sizes` does not infer; ``None`` without a rule."""
        name = dimension_name(dimension)
        place = name[0] if isinstance(name, tuple) and self._depth < _DEEPEST else None
        node = self.graph.nodes[place] if isinstance(place, int) else None
        if node is None or not isinstance(name, tuple):
            return None
        _, port, axis = name
        rule = (self._table.states if port else self._table.sizes).get(node.op)
        if rule is None:
            return None
        self._depth += 1
        try:
            size = rule(self, node, axis)
        except (IndexError, UnknownError, ValueError):
            return None
        finally:
            self._depth -= 1
        return None if size is None or any(part in self.misses for part in walk(size)) else size

    def shape(self, value: Value) -> Index:
        """Return the sizes of ``value``.

        Raises:
            UnknownError: The rank is unknown.
        """
        if value not in self._shapes:
            shape = self._sizes.shape(value)
            if shape is None:
                raise UnknownError(f"the rank of {value.name} is not known")
            self._shapes[value] = tuple(map(self.size, shape))
        return self._shapes[value]

    def of(self, value: Value, index: Index) -> Expr:
        """Return an element of a tensor; unknown subexpressions are opaque.

        Args:
            value: The tensor, a value of this object's graph.
            index: Index along each axis.
        """
        root = (value, index)
        running: list[tuple[Request, Generator[Request, Expr, Expr]]] = []
        answer: Expr | None = self._known.get(root)
        count = 0
        request = root
        while answer is None or running:
            if answer is None:
                count += 1
                if count > self.limit:
                    reason = f"it depends on more than {self.limit} elements"
                    expr = self._opaque(*root, self.graph.producer(value), reason)
                    return self._known.setdefault(root, expr)
                try:
                    running.append((request, self._start(*request)))
                except IndexError:
                    answer = self._known[request] = self._opaque(*request, self.graph.producer(request[0]), _MALFORMED)
                    continue
            (value_, index_), rule = running[-1]
            try:
                request = rule.send(answer)  # type: ignore[arg-type] # a generator starts with None
                answer = self._known.get(request)
                continue
            except StopIteration as stop:
                answer = stop.value
            except UnknownError as error:
                answer = self._opaque(value_, index_, self.graph.producer(value_), str(error))
            except (IndexError, ValueError, ZeroDivisionError):
                answer = self._opaque(value_, index_, self.graph.producer(value_), _MALFORMED)
            except OverflowError:
                answer = self._opaque(value_, index_, self.graph.producer(value_), _TOO_LARGE)
            running.pop()
            self._known[value_, index_] = answer
        return answer

    def cut(self, source: Value, inside: Collection[int]) -> Elements:
        """Return elements as expressions of the elements of ``source``.

        Args:
            source: A tensor that is read like an input.
            inside: Indices of nodes that may depend on it; elements of other nodes are shared with this object.
        """
        return _Cut(self, source, inside)

    def _start(self, value: Value, index: Index) -> Generator[Request, Expr, Expr]:
        node = self.graph.producer(value)
        rule = None if is_foreign(node) else self._table.elements.get(node.op)
        if node.op == "Parameter":
            return done(self._parameter(node, value, index))
        if node.op == "Constant":
            return done(self._constant(value, index))
        if rule is None:
            return done(self._opaque(value, index, node, f"operator {node.op} is not defined symbolically"))
        return rule(Element(self, node, value, index))

    def _parameter(self, node: Node, value: Value, index: Index) -> Expr:
        if value.element_type in REALS:
            return read(node.name, index, "real")
        if node.index in self._bits or value.element_type == "boolean":
            bit = read(node.name, index, "bool")
            return bit if value.element_type == "boolean" else choose(bit, ONE, ZERO)
        return read(node.name, index, "int")

    def _constant(self, value: Value, index: Index) -> Expr:
        expr = constant_element(self.graph, value, index)
        if expr is None:
            return self._opaque(value, index, self.graph.producer(value), "its elements cannot be read")
        return expr

    def _opaque(self, value: Value, index: Index, node: Node, reason: str) -> Expr:
        sort = "bool" if value.element_type == "boolean" else "int" if value.element_type in INTEGERS else "real"
        expr = make("opaque", ((Identity(id(self.graph)), value.node, value.port), *index), sort)  # type: ignore[arg-type]
        self.misses[expr] = Miss(node, reason)
        return expr


class _Cut(Elements):
    """Elements as expressions of the elements of one tensor."""

    def __init__(self, whole: Elements, source: Value, inside: Collection[int]) -> None:
        super().__init__(whole.graph, whole._sizes, whole._table, whole._lengths, whole._bits)
        self._whole, self._source, self._inside = whole, source, inside
        self._shapes, self.misses = whole._shapes, whole.misses

    def _start(self, value: Value, index: Index) -> Steps:
        if value == self._source:
            return done(read(("cut", value.node, value.port), index, "real"))
        if value.node not in self._inside:
            return done(self._whole.of(value, index))
        return super()._start(value, index)


def done(expr: Expr) -> Steps:
    """Return ``expr`` as a rule that requests no elements.

    Yields:
        No requests.
    """
    yield from ()
    return expr


def chosen(content: Index, index: Index) -> Expr:
    """Return an element of a scalar or vector.

    Args:
        content: Elements of the tensor, at least one.
        index: Empty for a scalar; the index along the axis of a vector.

    Raises:
        UnknownError: The index is outside the vector.
    """
    if not index or len(set(content)) == 1:
        return content[0]
    place = index[0].as_number
    if isinstance(place, int):
        if not 0 <= place < len(content):
            raise UnknownError(f"index {place} is outside its {len(content)} elements")
        return content[place]
    step = subtract(content[1], content[0])
    if all(content[position] is add(content[0], multiply(number(position), step)) for position in range(len(content))):
        return add(content[0], multiply(step, index[0]))
    expr = content[-1]
    for position in reversed(range(len(content) - 1)):
        expr = choose(equal(index[0], number(position)), content[position], expr)
    return expr
