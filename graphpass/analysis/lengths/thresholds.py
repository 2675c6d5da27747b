"""Lengths at which a graph changes its computation: windows, thresholds, ends of tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphpass.analysis.lengths.proven import find_lengths
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.analysis.symbolic.rotary import rotary_ports
from graphpass.analysis.symbolic.sizes import Sizes
from graphpass.ir.bodies import inlined
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.inputs import token_input
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, COMPARISONS, EXTREMA, GATHERS, SHAPE_READERS, SLICES
from graphpass.ir.values import MASKED, REALS, fixed_size

#: Operators that compare a length or position with a number, or shift it.
_COMPARING = COMPARISONS.keys() | EXTREMA | {"Add", "Equal", "FloorMod", "Mod", "Subtract"}

#: Attributes with the window of an attention operator.
_WINDOWS = ("local_window_size", "sliding_window")

#: Range of lengths: smaller numbers are axes and steps, larger ones mean no limit.
_LEAST, _MOST = 3, 2**24

#: Rank of a table with a row for each position.
_TABLE_RANK = 2

_WHOLE = frozenset({"i32", "i64"})


@dataclass(frozen=True, slots=True, order=True)
class Threshold:
    """A length at which a graph changes its computation.

    Attributes:
        length: Number of positions.
        node: Name of the node with this number.
        ends: Whether longer inputs are undefined, as beyond the end of a table.
        changes: Whether the computation changes at this length; false for rotary tables that an operator reads.
    """

    length: int
    node: str
    ends: bool = False
    changes: bool = True


def find_thresholds(model: Model) -> tuple[Threshold, ...]:
    """Return the thresholds of ``model``, ascending, one for each distinct length.

    A threshold is one of:

    - a constant that is compared with or added to a value that depends only on lengths, positions and the mask;
    - the number of rows of a table indexed by positions, or sliced from a position on;
    - the window attribute of an operator.
    """
    view = inlined(model)
    graph = view.graph
    constants, sizes = _constants(graph), find_lengths(view)
    measures = _measures(graph, sizes, constants)
    found = [threshold for node in graph.nodes for threshold in _thresholds(graph, node, measures)]
    found += [threshold for node in graph.of_op(*SLICES) for threshold in _sliced(node, sizes, constants)]
    thresholds: dict[int, Threshold] = {}
    for threshold in sorted(found):
        first = thresholds.setdefault(threshold.length, threshold)
        ends, changes = first.ends or threshold.ends, first.changes or threshold.changes
        thresholds[threshold.length] = replace(first, ends=ends, changes=changes)
    return tuple(thresholds.values())


def _measures(graph: Graph, sizes: Sizes, constants: set[Value]) -> set[Value]:
    """Return the values that depend on lengths, positions and the mask alone."""
    tokens = token_input(graph)
    counted: set[Value] = set()
    fixed = set(constants)
    for node in graph.nodes:
        if node.op == "Parameter":
            measured = node.outputs[0] != tokens and node.outputs[0].element_type in _WHOLE
        elif node.op in SHAPE_READERS:
            measured = True
        else:
            made = [value for value in node.sources if value not in fixed]
            measured = bool(made) and all(value in counted for value in made)
        for value in node.outputs if measured else ():
            (fixed if _is_fixed(sizes, value) else counted).add(value)
    return counted


def _constants(graph: Graph) -> set[Value]:
    """Return the values that depend on no input and no variable."""
    constants: set[Value] = set()
    for node in graph.nodes:
        if node.op == "Constant" or (node.sources and constants.issuperset(node.sources)):
            constants.update(node.outputs)
    return constants


def _sliced(node: Node, sizes: Sizes, constants: set[Value]) -> list[Threshold]:
    """Return the lengths beyond which the start of a table's slice is negative.

    Such a start is ``rows - length``, counted from the end of the table; if it is negative, it denotes other rows.
    """
    table, start, *_ = node.sources
    if table not in constants:
        return []
    starts = [ex.polynomial(expr) for expr in sizes.content(start) or ()]
    rows = {terms.get((), 0) for terms in starts if _falls(terms)} & set(table.shape or ())
    return _made(node, [(size, True) for size in rows])


def _falls(terms: Mapping[tuple[Expr, ...], int]) -> bool:
    """Return whether a polynomial is a constant minus lengths."""
    lengths = {monomial: factor for monomial, factor in terms.items() if monomial}
    return bool(lengths) and all(
        factor < 0 and [part.op for part in monomial] == ["length"] for monomial, factor in lengths.items()
    )


def _is_fixed(sizes: Sizes, value: Value) -> bool:
    content = sizes.content(value)
    return content is not None and all(size.op == "number" for size in content)


def _thresholds(graph: Graph, node: Node, measures: set[Value]) -> list[Threshold]:
    numbers = [(float(node.attributes[name]), False) for name in _WINDOWS if node.attributes.get(name)]
    if any(value in measures for value in node.sources):
        if node.op in _COMPARING:
            constants = [(value.element_type in REALS, fold_scalar(graph, value)) for value in node.sources]
            # Numbers that mask a score are not lengths.
            numbers += [
                (number, False) for real, number in constants if number is not None and not (real and number <= MASKED)
            ]
        table = node.sources[0]
        ports = rotary_ports(node)
        rows = None if ports is None else fixed_size(node.input(ports[1]), 0)
        if rows is not None:
            return [*_made(node, numbers), Threshold(rows, node.name, ends=True, changes=False)]
        if node.op in GATHERS and graph.producer(table).op == "Constant" and table.rank == _TABLE_RANK:
            rows = fixed_size(table, node.attributes.get("axis", 0))
            if rows is not None:
                numbers.append((rows - _offset(graph, node.sources[1]), True))
    return _made(node, numbers)


def _made(node: Node, numbers: list[tuple[float, bool]]) -> list[Threshold]:
    lengths = [(abs(int(number)), ends) for number, ends in numbers if number == int(number)]
    return [Threshold(length, node.name, ends) for length, ends in lengths if _LEAST <= length <= _MOST]


def _offset(graph: Graph, positions: Value) -> float:
    """Return the constant that is added to positions before they index a table; otherwise 0."""
    node = graph.producer(graph.look_through(positions, CASTS))
    added = [fold_scalar(graph, value) for value in node.inputs] if node.op == "Add" else []
    return next((number for number in added if number is not None), 0.0)
