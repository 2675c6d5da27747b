"""Elements of a whole model's tensors, with loops, chunks, and inputs between layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from graphpass.analysis.equations.token_loops import ends_early
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Index, OperatorTable, Request, Rule, UnknownError, done
from graphpass.analysis.symbolic.equal_sizes import as_dimension, dimension_name
from graphpass.analysis.symbolic.expressions import ZERO, Expr
from graphpass.analysis.symbolic.sizes import Sizes, infer_exact_sizes
from graphpass.ir.bodies import LOOPS, WITH_BODIES, inlined
from graphpass.ir.graph import Node, Value
from graphpass.ir.operators import SHAPE_READERS, SOURCES
from graphpass.verify.structure.definition import Definition
from graphpass.verify.structure.definitions import Definitions
from graphpass.verify.structure.leaves import Inputs, Leaf
from graphpass.verify.structure.tensors import DefinedTensors
from graphpass.verify.structure.weights import is_padded

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.verify.structure.constants import Constants

#: Operators of `inlined` bodies for outputs of loops; below, for all ports of bodies.
RESULTS = ("Final", "Stacked")
_PORTS = (*RESULTS, "Carried", "If", "Iteration", "Sliced")


class ModelTensors(DefinedTensors):
    """Elements of one model's tensors, including results of loops and of chunked linear attention.

    Attributes:
        read_as_numbers: Indices of Constants of which single elements were read as numbers.
    """

    def __init__(
        self,
        model: Model,
        table: OperatorTable,
        inputs: Inputs,
        definitions: Definitions,
        constants: Constants,
        rules: Mapping[Value, Rule],
        steps: Mapping[Expr, Expr],
    ) -> None:
        """Prepare the evaluation; see `DefinedTensors`, and `Chunks` for ``rules`` and ``steps``."""
        super().__init__(model, table, inputs, definitions, constants)
        self._rules, self._steps = rules, steps
        self.read_as_numbers = set[int]()
        self._fed: dict[Value, Definition] = {}
        self._replaced: dict[Value, Callable[[Index], Expr]] = {}
        self._begun = set[int]()

    def _start(self, value: Value, index: Index) -> Generator[Request, Expr, Expr]:
        if value in self._fed:
            return done(ex.read(self._fed[value], index, "real"))
        if value in self._replaced:
            return done(self._replaced[value](index))
        self._begun.add(value.node)
        rule = self._rules.get(value)
        if rule is not None:
            return rule(Element(self, self.graph.producer(value), value, index))
        return super()._start(value, index)

    @cached_property
    def bodies(self) -> BodyTensors:
        """Return the tensors in the bodies of loops and branches."""
        return BodyTensors(self)

    @cached_property
    def _asked(self) -> set[Expr]:
        """Return the sizes of loop outputs whose inference is in progress."""
        return set()

    def assume(self, reference: DefinedTensors) -> None:
        super().assume(reference)
        if isinstance(reference, ModelTensors) and any(self.graph.of_op(*WITH_BODIES)):
            self.bodies.assume(reference.bodies)

    def _by_rule(self, node: Node, value: Value, axis: int) -> Expr | None:
        if node.op not in LOOPS:
            return super()._by_rule(node, value, axis)
        return self.bodies.proven_size(node, value, axis)

    def _inferred(self, dimension: Expr) -> Expr:
        size = self._steps.get(dimension, dimension)
        if size is not dimension:
            return self.size(size)
        name = dimension_name(dimension)
        place, *axes = name if isinstance(name, tuple) else (None,)
        node = self.graph.nodes[place] if isinstance(place, int) else None
        # A size in the body may be named after the output of its own loop, which would not terminate.
        if node is None or node.op not in WITH_BODIES or dimension in self._asked:
            return super()._inferred(dimension)
        port, axis = axes
        value = self.bodies.end_of(node, node.outputs[port])
        if value is None:
            return super()._inferred(dimension)
        self._asked.add(dimension)
        try:
            return self.bodies.shape(value)[axis]
        finally:
            self._asked.remove(dimension)

    def packed(self, value: Value, bits: int, shape: tuple[int, ...], index: Index) -> Expr:
        if is_padded(f"u{bits}", shape):
            # The other model may store these integers in other bytes.
            self.read_as_numbers.add(self.stored(value).node)
        return super().packed(value, bits, shape, index)

    def feed(self, value: Value, stream: Definition) -> None:
        """Read a tensor as an input.

        Args:
            value: The tensor, of reals, which is not yet read.
            stream: The input.
        """
        self._fed[value] = stream
        self._known.pop((value, self.own_index(value)), None)

    def replace(self, value: Value, element: Callable[[Index], Expr]) -> None:
        """Replace a tensor that is not yet read.

        Args:
            value: The tensor.
            element: Returns the element at an index.
        """
        self._replaced[value] = element

    def is_read(self, value: Value) -> bool:
        """Return whether an operator has read elements of a tensor."""
        users = (use.node for use in self.graph.uses(value))
        return any(user.index in self._begun and user.op not in SHAPE_READERS for user in users)

    def stream(self, value: Value) -> Definition | None:
        """Return the input that a tensor is read as; ``None`` if it is not."""
        return self._fed.get(value)

    def _constant(self, value: Value, index: Index) -> Expr:
        result = super()._constant(value, index)
        if result.as_number is not None:
            self.read_as_numbers.add(value.node)
        return result

    def content(self, value: Value) -> Expr:
        """Return a constant as a function of its indices.

        It is read again, because a table may have been recognized as a formula since the first read.

        Args:
            value: The constant.
        """
        return self._constant(value, self.own_index(value))

    def leaf(self, node: Node) -> Leaf | None:
        """Return the leaf of the cache that a node reads; ``None`` for other inputs."""
        return self._leaves.get(node.index)

    def moved(self, node: Node) -> Value | None:
        """Return the cache that a node trims; ``None`` for other nodes."""
        return self._inputs.moves.get(node.index)

    def sizes_of(self, value: Value) -> Index | None:
        """Return the sizes of a tensor; ``None`` if its rank is unknown."""
        try:
            return self.shape(value)
        except UnknownError:
            return None

    def marks(self, node: Node) -> tuple[bool, ...] | None:
        """Return what the definition of an operator depends on besides operands, attributes and sizes.

        Returns:
            Whether a size is assumed, whether a sink is applied by or to the result, and whether NaN is replaced;
            ``None`` if the definition depends on other operators.
        """
        if any(value in self._rules for value in node.outputs) or self._sorted.includes(node):
            return None
        index = node.index
        return index in self._unsized, index in self._gated, index in self.sink_gates, index in self.guarded


class BodyTensors(DefinedTensors):
    """Elements of tensors in the bodies of loops and branches, in the view by `inlined`."""

    def __init__(self, outer: DefinedTensors) -> None:
        """Map the values that the model and its inlined view share.

        Args:
            outer: Tensors of the model with the bodies.
        """
        view = inlined(outer.model)
        values = [value for node in view.graph.nodes for value in node.outputs]
        times = Counter(value.name for value in values)
        named = {value.name: value for node in outer.graph.nodes for value in node.outputs}
        self._outer = outer
        # A value in a body may have the name of one outside, so names must be unique.
        both = {value: named[value.name] for value in values if times[value.name] == 1 and value.name in named}
        self._same = {value: other for value, other in both.items() if view.graph.producer(value).op not in _PORTS}
        self._joined = {other: value for value, other in both.items() if view.graph.producer(value).op == "If"}
        own, others = view.analysis(infer_exact_sizes), outer.model.analysis(infer_exact_sizes)
        self._outer_sizes: dict[Expr, Expr] = {}
        #: Whether sizes are equal in the view that are not in the model: those that one branch requires.
        self._requires_sizes = False
        for value, other in self._same.items():
            mine, theirs = own.shape(value), others.shape(other)
            for size, known in zip(mine or (), theirs or (), strict=mine is not None and theirs is not None):
                inside = size if as_dimension(size) is None else self._outer_sizes.setdefault(size, known)
                if inside is not known and as_dimension(known) is not None:
                    self._requires_sizes |= not self._is_chosen(known)
        inputs = Inputs({}, frozenset(), {}, {}, {})
        super().__init__(view, outer._table, inputs, outer.definitions, outer._constants)
        self._running = ""
        self._unknown: set[str] = set()

    def _is_chosen(self, size: Expr) -> bool:
        """Return whether a size depends on that of an output of an If."""
        names = [dimension_name(part) for part in ex.walk(size) if as_dimension(part) is not None]
        nodes = [self._outer.graph.nodes[name[0]] for name in names if isinstance(name, tuple)]
        return any(node.op == "If" for node in nodes)

    def _inferred(self, dimension: Expr) -> Expr:
        known = self._outer_sizes.get(dimension)
        return super()._inferred(dimension) if known is None else self._outer.size(known)

    def assumptions(self, nodes: Iterable[Node], *, tables: bool = False) -> Iterator[tuple[Node, Expr | None, Expr]]:
        """See `DefinedTensors.assumptions`; the outer tensors have those of nodes outside bodies.

        Returns:
            As `DefinedTensors.assumptions`.
        """
        own = (node for node in nodes if self._same.keys().isdisjoint(node.outputs))
        return super().assumptions(own, tables=tables)

    def shape(self, value: Value) -> Index:
        return self._outer.shape(self._same[value]) if value in self._same else super().shape(value)

    def _start(self, value: Value, index: Index) -> Generator[Request, Expr, Expr]:
        node = self.graph.producer(value)
        other = self._same.get(value)
        if node.op in RESULTS and node.name != self._running:
            loop = next((loop for loop in self._outer.graph.of_op(*LOOPS) if loop.name == node.name), None)
            if loop is None:
                raise UnknownError("a loop in the body of another has no definition")
            other = loop.outputs[node.attributes["port"]]
        return super()._start(value, index) if other is None else done(self._outer.of(other, index))

    def end_of(self, node: Node, value: Value) -> Value | None:
        """Return the output of a loop or an If in the inlined view.

        Args:
            node: The operator in the model.
            value: Its output in the model.

        Returns:
            The output in the view; ``None`` if several have its name.
        """
        if node.op == "If":
            return self._joined.get(value)
        ends = [end for end in self.graph.of_op(*RESULTS) if end.name == node.name]
        own = [end.outputs[0] for end in ends if end.attributes["port"] == value.port]
        return own[0] if len(own) == 1 else None

    @cached_property
    def _proven(self) -> Sizes | None:
        """Return sizes by rules alone, from those of inputs and caches.

        The result is ``None`` if equal sizes follow from a body, which may not run, or if a loop changes the size of a
        carried tensor: rules have the sizes of the first iteration.
        """
        proven, around = (Sizes(tensors.graph, _sizes_of_sources(tensors)) for tensors in (self, self._outer))
        carried = [final for final in self.graph.of_op("Final") if len(final.inputs) == 2]
        starts = [(self.graph.producer(final.source(1)).source(), final.outputs[0]) for final in carried]
        changes = any(proven.shape(start) != proven.shape(end) for start, end in starts)
        return None if changes or not around.includes(proven, self._same) else proven

    def proven_size(self, node: Node, value: Value, axis: int) -> Expr | None:
        """Return a size of the output of a loop, without assumptions.

        The result is ``None`` if it depends on more than the sizes of inputs and caches.

        Args:
            node: The loop in the model.
            value: Its output in the model.
            axis: The axis.
        """
        end = self.end_of(node, value)
        shape = None if end is None or self._proven is None else self._proven.shape(end)
        if shape is None:
            return None
        names = {part: dimension_name(part) for part in ex.walk(shape[axis]) if as_dimension(part) is not None}
        known = {part: name for part, name in names.items() if isinstance(name, Expr)}
        return ex.substitute(shape[axis], known) if len(known) == len(names) else None

    def iterations(self, loop: str) -> Expr | None:
        """Return the number of iterations of a Loop; ``None`` for loops over slices.

        Raises:
            UnknownError: A condition may end the loop early.
        """
        node = next((node for node in self.graph.of_op("Iteration") if node.name == loop), None)
        if node is None:
            return None
        count = node.attributes["count"]
        if count is None or ends_early(self.graph, node):
            raise UnknownError("the loop may end before the last iteration")
        return self.of(count, (ZERO,) * (count.rank or 0))

    def result(self, node: Node, value: Value, index: Index) -> Expr:
        """Return an element of the output of a loop or an If.

        Args:
            node: The operator in the model.
            value: Its output in the model.
            index: Index of the element.

        Raises:
            UnknownError: The body contains an operation without a definition.
        """
        end = self.end_of(node, value)
        if end is None or node.name in self._unknown:
            raise UnknownError(f"the body of the {node.op} has no definition")
        if node.op == "If" and self._requires_sizes:
            raise UnknownError("a branch requires sizes that the other may not have")
        before, around, self._running = len(self.misses), self._running, node.name
        try:
            result = self.of(end, index)
        finally:
            self._running = around
        if len(self.misses) > before:
            self._unknown.add(node.name)
            raise UnknownError(f"an operation in the body of the {node.op} has no definition")
        return result


def _sizes_of_sources(tensors: DefinedTensors) -> dict[tuple[int, int], Expr]:
    """Return the sizes of inputs and caches that are not constant, by node and axis."""
    sources = [value for node in tensors.graph.of_op(*SOURCES) if (value := node.outputs[0]).rank is not None]
    sizes = {(value.node, axis): size for value in sources for axis, size in enumerate(tensors.shape(value))}
    return {place: size for place, size in sizes.items() if size.op != "number"}
