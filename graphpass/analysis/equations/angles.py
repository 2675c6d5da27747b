"""Derive tables that depend on positions as expressions: cosines, sines, learned position embeddings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.operands import scores_product
from graphpass.analysis.attention.types import OPERATORS, Attention
from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.equations.activations import find_activations, mask_values
from graphpass.analysis.equations.rotation import QUERY, ROW
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.constants import Table
from graphpass.analysis.symbolic.elements import Elements, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.rotary import rotary_ports
from graphpass.analysis.symbolic.step import BATCH, LENGTH, PAST
from graphpass.ir.graph import Node, Value
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model
from graphpass.ir.operators import ARITHMETIC, GATHERS, LAYOUT, SLICES, SPLITS
from graphpass.ir.values import REALS

#: Maximum number of channels of a table that is derived channel by channel; learned embeddings have more.
_MOST_CHANNELS = 1024

#: Operators between projections and scores.
_ON_THE_WAY = ARITHMETIC | GATHERS | LAYOUT | SLICES | SPLITS | {"Concat", "Negative"}


@dataclass(frozen=True, slots=True)
class PositionTable:
    """A tensor with channels for each new position, or a table to select them from.

    Attributes:
        reader: The node that reads it.
        value: The tensor, or a table with a row for every position.
        axis: Axis of the new positions in the tensor; ``None`` for a table.
        positions: Indices of a table's rows; without them, a row is selected by its slot in the cache.
    """

    reader: Node
    value: Value
    axis: int | None = None
    positions: Value | None = None


@dataclass(frozen=True, slots=True)
class Angles:
    """The tables that one attention, or a sum with hidden states, reads by position.

    Attributes:
        node: The attention, or the sum.
        tables: The tables.
        forms: The element of each table at `ROW`, `QUERY` and indices of its channels, or of each channel.
        elements: Elements of the graph.
        misses: Unknown parts, with node and reason.
    """

    node: Node
    tables: tuple[PositionTable, ...]
    forms: tuple[Expr, ...]
    elements: Elements
    misses: tuple[Miss, ...]

    @property
    def rows(self) -> int | None:
        """Return the number of rows of the shortest table, the limit of positions, if any."""
        sizes = [self.elements.shape(table.value)[0].as_number for table in self.tables if table.axis is None]
        reads = (part.args for part in ex.walk(*self.forms) if part.op == "read")
        sizes += [
            source.elements.shape[0]
            for source, *index in reads
            if isinstance(source, Table) and ex.contains([index[0]], QUERY)
        ]
        return min((size for size in sizes if isinstance(size, int)), default=None)

    def positions(self) -> tuple[Expr, ...]:
        """Return the positions that the forms depend on, at `ROW` and `QUERY`, in order."""
        positions, pending = dict[Expr, None](), list(reversed(self.forms))
        while pending:
            part = pending.pop()
            if not ex.contains([part], QUERY):
                continue
            parts = tuple(ex.walk(part))
            bound = {each.args[1] for each in parts if each.op == "running_sum"}
            has_channels = any(each.op == "index" and each not in {ROW, QUERY, *bound} for each in parts)
            if has_channels or any(each.op == "read" and isinstance(each.args[0], Table) for each in parts):
                pending += reversed(part.operands)
            else:
                positions[part] = None
        return tuple(positions)

    def channels(self) -> frozenset[Expr]:
        """Return the element of each channel; one with symbolic channels for wide tables."""
        return frozenset(form for table in self.tables for form in _by_channel(self.elements, table))


def find_angles(model: Model) -> tuple[Angles, ...]:
    """Return the angles of each attention that `find_attention` finds, in order, for `Model.analysis`."""
    elements = model.analysis(find_elements)
    return tuple(
        _angles(elements, attention.node, tuple(dict.fromkeys(_tables(model, attention))))
        for attention in model.analysis(find_attention)
    )


def find_learned_positions(model: Model) -> tuple[Angles, ...]:
    """Return the learned position embeddings added to hidden states, in order, for `Model.analysis`."""
    graph, data = model.graph, model.analysis(find_activations)
    elements = model.analysis(find_elements)
    masks = mask_values(model)
    learned = []
    for node in graph.of_op("Add"):
        for value in node.inputs if node.index in data else ():
            if value is None or value.node in data or value in masks:
                continue
            lookup = graph.producer(graph.look_through(value, LAYOUT))
            table = lookup.input(0) if lookup.op in GATHERS else None
            if table is not None and table.rank == 2 and graph.producer(table).op == "Constant":
                axis = _axis_of_positions(elements, value)
                if axis is not None:
                    learned.append(_angles(elements, node, (PositionTable(node, value, axis),)))
    return tuple(learned)


def find_last_row(model: Model) -> int | None:
    """Return the number of rows of the shortest table; ``None`` without tables, for `Model.analysis`."""
    every = (*model.analysis(find_angles), *model.analysis(find_learned_positions))
    return min((angles.rows for angles in every if angles.rows is not None), default=None)


def _angles(elements: Elements, node: Node, tables: tuple[PositionTable, ...]) -> Angles:
    forms: list[Expr] = []
    misses: list[Miss] = []
    for table in tables:
        try:
            own = [_element(elements, table, _indices(elements, table))]
            if _opaque(elements, own):
                # A Reshape into pairs of channels may be known for constant channels only.
                own = list(_by_channel(elements, table))
        except UnknownError as error:
            misses.append(Miss(table.reader, str(error)))
            continue
        forms += own
        misses += _opaque(elements, own)
    return Angles(node, tables, tuple(dict.fromkeys(forms)), elements, tuple(dict.fromkeys(misses)))


def _opaque(elements: Elements, forms: list[Expr]) -> list[Miss]:
    return [elements.misses[part] for part in ex.walk(*forms) if part in elements.misses]


def _by_channel(elements: Elements, table: PositionTable) -> Iterator[Expr]:
    """Yield the element of each channel; of wide tables, one with symbolic channels."""
    sizes = [size.as_number for size in _channels(elements, table)]
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < len(sizes) or math.prod(known) > _MOST_CHANNELS:
        yield _element(elements, table, _indices(elements, table))
        return
    for places in product(*map(range, known)):
        yield _element(elements, table, tuple(map(number, places)))


def _element(elements: Elements, table: PositionTable, channels: tuple[Expr, ...]) -> Expr:
    """Return the element of a table at `ROW`, `QUERY` and channels."""
    sizes, rest = elements.shape(table.value), iter(channels)
    first = _row_of(elements, table) if table.axis is None else QUERY
    place = tuple(
        first
        if axis == (table.axis or 0)
        else ZERO
        if size is ONE
        else ROW
        if _is_batch(table, axis, size)
        else next(rest)
        for axis, size in enumerate(sizes)
    )
    return elements.of(table.value, place)


def _is_batch(table: PositionTable, axis: int, size: Expr) -> bool:
    return table.axis is not None and axis != table.axis and size is BATCH


def _channels(elements: Elements, table: PositionTable) -> list[Expr]:
    """Return the sizes of the axes of ``table`` that are neither batch nor positions."""
    return [
        size
        for axis, size in enumerate(elements.shape(table.value))
        if axis != (table.axis or 0) and size is not ONE and not _is_batch(table, axis, size)
    ]


def _indices(elements: Elements, table: PositionTable) -> tuple[Expr, ...]:
    return tuple(ex.index(f"channel {axis}", size) for axis, size in enumerate(_channels(elements, table)))


def _row_of(elements: Elements, table: PositionTable) -> Expr:
    """Return the row of a table that the query at `ROW`, `QUERY` reads."""
    if table.positions is not None:
        sizes = elements.shape(table.positions)
        if len(sizes) == 2:
            return elements.of(table.positions, (ZERO if sizes[0] is ONE else ROW, QUERY))
        # A tensor of one element is the first new position, see com.microsoft.RotaryEmbedding.
        return ex.add(elements.of(table.positions, (ZERO,) * len(sizes)), QUERY)
    lengths = table.reader.present(OPERATORS[table.reader.op].lengths if table.reader.op in OPERATORS else ())
    if not lengths:
        return ex.add(PAST, QUERY)
    sizes = elements.shape(lengths[0])
    last = elements.of(lengths[0], tuple(ZERO if size is ONE else ROW for size in sizes))
    # The number of positions of each row minus 1, see docs/ContribOperators.md of ONNX Runtime.
    return ex.add(ex.subtract(ex.add(last, ONE), LENGTH), QUERY)


def _tables(model: Model, attention: Attention) -> Iterator[PositionTable]:
    """Yield operands between projections and scores that depend on positions."""
    graph, data = model.graph, model.analysis(find_activations)
    elements = model.analysis(find_elements)
    starts = [attention.query, attention.key]
    if attention.miss is not None:
        scores = scores_product(graph, attention.node)
        starts = [] if scores is None else list(scores.inputs)

    def operands(node: Node) -> tuple[Value | None, ...]:
        if rotary_ports(node) is not None:
            return node.inputs[:1]
        return tuple(value for value in node.sources if value.node in data) if node.op in _ON_THE_WAY else ()

    seen: set[Value] = set()
    yield from _looked_up(attention.node)
    for node in graph.backward(starts, operands):
        if node.index not in data:
            continue
        yield from _looked_up(node)
        for value in node.inputs if node.op in ARITHMETIC else ():
            if value is None or value.node in data or value.element_type not in REALS or value in seen:
                continue
            seen.add(value)
            if graph.producer(value).op != "Constant":
                axis = _axis_of_positions(elements, value)
                if axis is not None:
                    yield PositionTable(node, value, axis)


def _axis_of_positions(elements: Elements, value: Value) -> int | None:
    try:
        sizes = elements.shape(value)
    except UnknownError:
        # `_angles` requests the element as well, and reports the reason.
        return 0
    return sizes.index(LENGTH) if LENGTH in sizes else None


def _looked_up(node: Node) -> Iterator[PositionTable]:
    at_port, *tables = rotary_ports(node) or (0,)
    for value in filter(None, map(node.input, tables)):
        # Tables of rank 3 are ``[batch, length, size / 2]``, without positions.
        yield PositionTable(node, value, 1 if value.rank == 3 else None, node.input(at_port))
