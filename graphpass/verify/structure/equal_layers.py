"""Layers of equal structure, which are compared once.

Values between layers that are proven equal become inputs of the next layer in both models. A layer is then an
expression of such an input, its caches and its weights. If two layers are the same expressions of these, in both
models, then the proof of one is the proof of the other, by induction over the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.analysis.caches.chain import is_weight
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.constants import Table
from graphpass.analysis.symbolic.elements import UnknownError
from graphpass.ir.operators import SHAPE_READERS, SOURCES
from graphpass.ir.values import INTEGERS
from graphpass.verify.structure.definition import Definition, KnownWeight
from graphpass.verify.structure.signs import is_total
from graphpass.verify.structure.tensors import kind_of

if TYPE_CHECKING:
    from graphpass.ir.graph import Node, Value
    from graphpass.verify.parts import Part
    from graphpass.verify.structure.model_tensors import ModelTensors


@dataclass(frozen=True, slots=True)
class LayerPair:
    """A layer of both models.

    Attributes:
        parts: The reference's layer, then the candidate's.
        ends: Values of the reference and the candidate: those written to the layer's caches, and the last value.
        forms: Orders of axes and windows of each pair of ends, as in `ComparedResult`.
    """

    parts: tuple[Part, Part]
    ends: tuple[tuple[Value, Value], ...]
    forms: tuple[Hashable, ...]


class EqualLayers:
    """Layers that are proven equal in both models."""

    def __init__(self, sides: tuple[ModelTensors, ModelTensors], caches: Collection[str]) -> None:
        """Create an object without proven layers.

        Args:
            sides: Tensors of the reference, then of the candidate.
            caches: Names of the leaves of caches that both models have.
        """
        self._sides, self._caches = sides, caches
        self._proven: dict[Hashable, bool] = {}
        self._kinds: tuple[dict[int, Hashable], dict[int, Hashable]] = {}, {}

    def prove(self, pair: LayerPair, name: str, compare: Callable[[], bool]) -> bool:
        """Return whether a layer is proven equal, itself or by an equal layer.

        Both models read the last value of a proven layer as an input from then on, unless it was read before.

        Args:
            pair: The layer, downstream of the layers proven before.
            name: Name of the input.
            compare: Compares the ends of the layer.
        """
        key, last = self._key(pair), pair.ends[-1]
        is_partial = None if key is None else self._proven.get(key)
        if is_partial is None:
            if not compare():
                return False
            is_partial = not is_total(self._sides[0].whole(last[0]))
            # Evaluation shows which constants are read as numbers.
            if (key := self._key(pair)) is not None:
                self._proven[key] = is_partial
        stream, sides = Definition("between layers", (name,), (), is_partial), list(zip(self._sides, last, strict=True))
        if not any(tensors.is_read(end) for tensors, end in sides):
            for tensors, end in sides:
                tensors.feed(end, stream)
        return True

    def _key(self, pair: LayerPair) -> Hashable:
        """Return both models' expressions of the ends; ``None`` if these read other layers."""
        numbers: dict[Hashable, int] = {}
        ends = zip(*pair.ends, strict=True)
        try:
            sides = zip(self._sides, pair.parts, self._kinds, ends, strict=True)
            return pair.forms, *(
                _Description(tensors, part, self._caches, kinds, numbers).of(own) for tensors, part, kinds, own in sides
            )
        except UnknownError:
            return None


class _Description:
    """Operators of a layer in execution order.

    Weights and caches are numbered by their first use in both models.
    """

    def __init__(
        self,
        tensors: ModelTensors,
        part: Part,
        caches: Collection[str],
        kinds: dict[int, Hashable],
        numbers: dict[Hashable, int],
    ) -> None:
        self._tensors, self._part, self._caches = tensors, part, caches
        self._kinds, self._numbers = kinds, numbers
        self._places: dict[int, int] = {}
        self._records: list[Hashable] = []

    def of(self, ends: Sequence[Value]) -> Hashable:
        """Return the description of the operators that compute ``ends``.

        Raises:
            UnknownError: The elements of a value depend on more than the operators upstream of it in the layer.
        """
        for node in self._tensors.graph.operands_first(ends, self._inside):
            self._places[node.index] = len(self._records)
            self._records.append(self._record(node))
        return (*self._records, *(self._place(end) for end in ends))

    def _inside(self, node: Node) -> list[Value | None]:
        return [value for value in self._sources(node) if value != self._part.entry]

    def _sources(self, node: Node) -> Sequence[Value | None]:
        """Return the operands of which a node reads elements.

        Raises:
            UnknownError: The node computes the value before or after another layer.
        """
        entry, moved = self._part.entry, self._tensors.moved(node)
        if node.index in self._part.outside and (entry is None or node.index != entry.node):
            raise UnknownError("the layer reads a value between other layers")
        return (moved,) if moved else () if node.op in SHAPE_READERS else self._part.sources(node)

    def _record(self, node: Node) -> Hashable:
        if node.index not in self._kinds:
            self._kinds[node.index] = self._kind(node)
        sources = tuple(value and self._operand(value) for value in self._sources(node))
        return self._kinds[node.index], self._content(node), sources

    def _operand(self, value: Value) -> Hashable:
        """Return the place of the operand's producer.

        Raises:
            UnknownError: It is the value before the layer, and is not read as an input.
        """
        if value != self._part.entry:
            return self._place(value)
        stream = self._tensors.stream(value)
        if stream is None:
            raise UnknownError("the layer depends on the layers before it")
        return stream.kind, stream.is_partial

    def _kind(self, node: Node) -> Hashable:
        """Return operator, attributes, types and sizes.

        Raises:
            UnknownError: Elements of the outputs are not defined by the operands.
        """
        tensors, marks = self._tensors, self._tensors.marks(node)
        shapes = tuple((value.element_type, value.rank, tensors.sizes_of(value)) for value in node.outputs)
        is_leaf = node.op in SOURCES | {"Constant"}
        kind = None if is_leaf else kind_of(node, tensors)
        if marks is None or (kind is None and not is_leaf):
            raise UnknownError("its elements depend on more than its operands")
        read = tuple(map(tensors.shape, node.sources)) if node.op in SHAPE_READERS else ()
        return node.op, kind, marks, shapes, read

    def _content(self, node: Node) -> Hashable:
        """Return the elements of a constant, or the cache or input that a node reads.

        Raises:
            UnknownError: It is a cache of another layer, or one that only one model has.
        """
        if node.op == "Constant":
            return self._elements(node)
        if node.op not in SOURCES:
            return None
        leaf = self._tensors.leaf(node)
        if leaf is None:
            return node.name
        if node.name not in self._part.reads or leaf.name not in self._caches or leaf.past is not None:
            raise UnknownError("it is a cache of another layer")
        return self._number(leaf.name), leaf.order, leaf.batch, leaf.is_cut, leaf.selectors, leaf.window

    def _elements(self, node: Node) -> Hashable:
        """Return a constant as a function of its indices, in which weights are numbered."""
        value, tensors = node.outputs[0], self._tensors
        content = tensors.content(value)
        if node.index in tensors.read_as_numbers:
            return content
        is_known = value.element_type in INTEGERS or not is_weight(node)
        # A table that the other model has as a multiple, or in parts, is compared by its elements.
        related = tensors.definitions.algebra.related

        def is_numbered(source: object) -> bool:
            return isinstance(source, KnownWeight) or (
                isinstance(source, Table) and not is_known and source not in related
            )

        numbered = {
            part: ex.read(("weight", self._number(_identity(part.args[0]))), part.args[1:], part.sort)
            for part in ex.walk(content)
            if part.op == "read" and is_numbered(part.args[0])
        }
        return ex.substitute(content, numbered) if numbered else content

    def _number(self, name: Hashable) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def _place(self, value: Value) -> tuple[int, int]:
        return self._places[value.node], value.port


def _identity(weight: KnownWeight | Table) -> Hashable:
    return weight.content if isinstance(weight, KnownWeight) else weight
