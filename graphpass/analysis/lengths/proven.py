"""Which dimensions of an OpenVINO model are equal, and which small integer tensors hold them.

OpenVINO's own shape inference carries the symbols; what it forgets (sums, lengths of ranges, values computed of
dimensions) is added here, node by node.

Passes edit by what is found, so that lengths count as equal only where every inference proves it. `sizes` asks less: it
reads graphs of both dialects, whatever their ports declare, and takes operands that are combined for equally large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import openvino

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.lengths.length_shapes import equations, infer_shape
from graphpass.analysis.lengths.length_values import evaluate
from graphpass.analysis.shapes.linear_size import Size, Vector
from graphpass.dialects.openvino.ports import port_name

if TYPE_CHECKING:
    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.ir.cache import Cache

__all__ = ["Lengths", "Size", "find_lengths"]

#: Operators whose outputs keep the type and shape that they are given, so that they have the last walk's symbols.
_SOURCES = frozenset({"Constant", "Parameter", "ReadValue"})

#: Operators that give the mask's symbol to a length that may be the query's (2026.4.1).
_FORGETFUL = frozenset({"ScaledDotProductAttention"})

#: How often a model is walked over at most; two or three do.
_ROUNDS = 4

_Key: TypeAlias = tuple[str, int]
_Birth: TypeAlias = tuple[str, int, int]

#: By past, the axis of positions and where their number is born: the same for caches that count as equally long.
_Pasts: TypeAlias = Mapping[str, tuple[int | None, _Birth]]


class Lengths:
    """What is known of the dimensions and integer values of one model."""

    def __init__(
        self,
        shapes: Mapping[_Key, Vector],
        values: Mapping[_Key, Vector],
    ) -> None:
        """Create the result.

        Args:
            shapes: Lengths of each output's dimensions, by node name and port.
            values: Elements of small integer tensors, flat.
        """
        self._shapes = shapes
        self._values = values

    def shape(self, output: openvino.Output) -> Vector | None:
        """The dimensions of ``output``; ``None`` where its rank is not known."""
        return self._shapes.get((output.get_node().get_name(), output.get_index()))

    def value(self, output: openvino.Output) -> Vector | None:
        """The elements of ``output``, flat, where it is a small integer tensor made of dimensions."""
        return self._values.get((output.get_node().get_name(), output.get_index()))


def find_lengths(model: OpenVINOModel) -> Lengths:
    """Dimensions of ``model`` that are equal in every inference that succeeds.

    Caches of kind ``kv`` count as equally long where every step appends equally many positions to each: they start
    empty, so that they stay so. Of stateless ones that is what their runtimes feed. Where that cannot be told of all,
    it is asked of those of each layer, of which attention takes no others. Where embeddings from two tables are added,
    of tokens and of positions, there count as many of one as of the other.

    Args:
        model: Looked at only; its shapes are inferred anew at the end. Bodies of If and Loop are not entered.
    """
    caches = analyze_caches(model).of_kind("kv")
    try:
        for pasts in (_pasts(caches, lambda _: 0), _pasts(caches, lambda cache: cache.layer), {}):
            walk = _settled(model.ov_model, pasts)
            if walk.caches_grow_alike(model):
                break
    finally:
        model.ov_model.validate_nodes_and_infer_types()
    return walk.result()


def _pasts(caches: tuple[Cache, ...], group: Callable[[Cache], int | None]) -> _Pasts:
    """Caches of one group count as equally long; those of none as others than all."""
    groups = ((cache, group(cache)) for cache in caches)
    return {cache.read: (cache.axes.sequence, ("", one, 0)) for cache, one in groups if one is not None}


def _settled(model: openvino.Model, pasts: _Pasts) -> _Walk:
    """Walks again with what the walk before found equal, until that is all."""
    walk = _Walk(pasts, {})
    for _ in range(_ROUNDS):
        walk.run(model)
        equal = walk.equal_births()
        if equal == walk.equal:
            break
        walk = _Walk(pasts, equal)
    else:
        walk.run(model)
    return walk


class _Walk:
    """One walk over a model in topological order, which gives every dynamic dimension a symbol.

    A symbol is born at the dimension that first has it: a node's name, a port and an axis.
    """

    def __init__(self, pasts: _Pasts, equal: Mapping[_Birth, _Birth]) -> None:
        self.equal = equal
        self._pasts = pasts
        self._symbols: list[openvino.Symbol] = []
        self._births: list[_Birth] = []
        self._born: dict[_Birth, int] = {}
        self._numbers: dict[int, int] = {}
        self._held: list[openvino.Symbol] = []
        self._of_size: dict[Size, int] = {}
        self._meaning: dict[int, Size] = {}
        self._equations: list[tuple[Size, Size]] = []
        self._shapes: dict[_Key, Vector] = {}
        self._values: dict[_Key, Vector] = {}

    def run(self, model: openvino.Model) -> None:
        """Walk over ``model``, whose nodes hold symbols afterwards."""
        for op in model.get_ordered_ops():
            kind = op.get_type_name()
            if kind not in _SOURCES:
                op.constructor_validate_and_infer_types()
            shapes = [self._shapes.get(_key(source)) for source in op.input_values()]
            values = [self._values.get(_key(source)) for source in op.input_values()]
            for output in op.outputs():
                self._name_dimensions(op, output, shapes, values)
                value = evaluate(op, output, shapes, values)
                if value is not None:
                    self._values[_key(output)] = value
            self._equations += equations(op, shapes)

    def _name_dimensions(
        self,
        op: openvino.Node,
        output: openvino.Output,
        shapes: list[Vector | None],
        values: list[Vector | None],
    ) -> None:
        """Give each dynamic dimension of ``output`` a symbol, the one that equal dimensions have."""
        found = output.get_partial_shape()
        if found.rank.is_dynamic:
            return
        kind, name = op.get_type_name(), op.get_name()
        past = self._pasts.get(op.get_friendly_name()) if kind in {"Parameter", "ReadValue"} else None
        derived = infer_shape(op, shapes, values) if output.get_index() == 0 else {}
        distrusted = kind in _SOURCES | _FORGETFUL
        dimensions, sizes = [], []
        for axis, dimension in enumerate(found):
            number = None if distrusted or not dimension.has_symbol() else self._number(dimension.get_symbol())
            if dimension.is_dynamic and number is None:
                size = derived.get(axis)
                if size is not None and size.plain is not None:
                    dimension = openvino.Dimension(size.plain)
                else:
                    birth = past[1] if past and past[0] == axis else (name, output.get_index(), axis)
                    dimension = openvino.Dimension(dimension.min_length, dimension.max_length)
                    number = self._number_of(size, birth)
                    dimension.set_symbol(self._symbols[number])
            dimensions.append(dimension)
            if number is None:
                sizes.append(Size(dimension.get_length()))
            else:
                sizes.append(self._meaning.get(number, Size.of(number)))
        op.set_output_type(output.get_index(), output.get_element_type(), openvino.PartialShape(dimensions))
        self._shapes[_key(output)] = tuple(sizes)

    def _number(self, symbol: openvino.Symbol) -> int | None:
        """The number of ``symbol``; ``None`` for one of an earlier walk, which OpenVINO remembers of values."""
        number = self._numbers.get(id(symbol))
        if number is None:
            number = next((number for number, known in enumerate(self._symbols) if known == symbol), None)
            if number is not None:
                # Python sees one object for each symbol as long as it is held, so that most need not be compared.
                self._numbers[id(symbol)] = number
                self._held.append(symbol)
        return number

    def _number_of(self, size: Size | None, birth: _Birth) -> int:
        """The number of the symbol that stands for ``size``; a new one where nothing is known of it."""
        if size is None:
            return self._born_at(self.equal.get(birth, birth))
        number: int | None = size.dimension
        if number is not None:
            return number
        if size not in self._of_size:
            self._of_size[size] = self._born_at(birth)
            self._meaning[self._of_size[size]] = size
        return self._of_size[size]

    def _born_at(self, birth: _Birth) -> int:
        if birth not in self._born:
            symbol = openvino.Symbol()
            self._born[birth] = self._numbers[id(symbol)] = len(self._symbols)
            self._symbols.append(symbol)
            self._births.append(birth)
        return self._born[birth]

    def equal_births(self) -> dict[_Birth, _Birth]:
        """For each symbol that equals an earlier one, where both were born."""
        first = self._first()
        equal = dict(self.equal)
        for number, earlier in enumerate(first):
            if earlier != number and number not in self._meaning:
                equal[self._births[number]] = self._births[earlier]
        # What was made one in an earlier walk follows its representative.
        return {birth: equal.get(other, other) for birth, other in equal.items()}

    def _first(self) -> list[int]:
        """For each symbol the first one that is equal to it."""
        first = [
            next(other for other in range(number + 1) if self._symbols[other] == symbol)
            for number, symbol in enumerate(self._symbols)
        ]
        sums = [
            (self._meaning.get(number, Size.of(number)), self._meaning.get(other, Size.of(other)))
            for number, other in enumerate(first)
            if number != other and number in self._meaning
        ]
        for one, two in [*self._equations, *sums]:
            difference = _with(first, one, {}) - _with(first, two, {})
            if difference.number == 0 and sorted(factor for _, factor in difference.dimensions) == [-1, 1]:
                earlier, later = sorted(number for number, _ in difference.dimensions)
                first = [earlier if number == later else number for number in first]
        return first

    def caches_grow_alike(self, model: OpenVINOModel) -> bool:
        """Whether a step appends equally many positions to all caches that count as equally long."""
        caches = [cache for cache in analyze_caches(model).of_kind("kv") if cache.read in self._pasts]
        written = {}
        for op in model.ov_model.get_ordered_ops():
            if op.get_type_name() in {"Assign", "Result"}:
                name = port_name(op.output(0)) if op.get_type_name() == "Result" else op.get_friendly_name()
                written[name] = op.input_value(0)
        known = self.result()
        grown: dict[_Birth, set[Size | None]] = {}
        for cache in caches:
            axis, birth = self._pasts[cache.read]
            shape = known.shape(written[cache.write]) if cache.write in written else None
            grown.setdefault(birth, set()).add(None if shape is None or axis is None else shape[axis])
        return all(len(sizes) == 1 and None not in sizes for sizes in grown.values())

    def result(self) -> Lengths:
        """What was found, with symbols that turned out to be equal made one."""
        first = self._first()
        found = (
            {key: tuple(_with(first, size, self._meaning) for size in sizes) for key, sizes in known.items()}
            for known in (self._shapes, self._values)
        )
        return Lengths(*found)


def _with(first: list[int], size: Size, meaning: Mapping[int, Size]) -> Size:
    """``size`` with each symbol replaced by the first that is equal to it, or by what that stands for."""
    total = Size(size.number)
    for number, factor in size.dimensions:
        total += meaning.get(first[number], Size.of(first[number])) * factor
    return total


def _key(output: openvino.Output) -> _Key:
    return output.get_node().get_name(), output.get_index()
