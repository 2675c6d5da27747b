"""Find lengths at which a graph changes: windows, thresholds, ends of tables."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphpass.analysis.lengths.proven import find_lengths
from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.analysis.symbolic.rotary import rotary_ports
from graphpass.analysis.symbolic.sizes import Sizes
from graphpass.ir.bodies import inlined
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.inputs import token_input
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, COMPARISONS, EXTREMA, GATHERS, SHAPE_READERS
from graphpass.ir.values import MASKED, REALS, fixed_size

#: Set a number against a length or a position.
_COMPARING = COMPARISONS.keys() | EXTREMA | {"Add", "Equal", "FloorMod", "Mod", "Subtract"}

#: Name windows of attention operators.
_WINDOWS = ("local_window_size", "sliding_window")

#: Smaller numbers count dimensions and step through vectors; larger ones stand for no end.
_LEAST, _MOST = 3, 2**24

#: A table has a row for each position.
_TABLE_RANK = 2

_WHOLE = frozenset({"i32", "i64"})


@dataclass(frozen=True, slots=True, order=True)
class Threshold:
    """Records a length at which a graph changes what it does.

    Attributes:
        length: Number of positions.
        node: The node that holds the number.
        ends: Whether nothing is defined beyond, as at the end of a table.
        changes: Whether the graph computes otherwise there; attention looks angles up itself, and does not.
    """

    length: int
    node: str
    ends: bool = False
    changes: bool = True


def find_thresholds(model: Model) -> tuple[Threshold, ...]:
    """Return one threshold for each length, rising.

    A number counts if it is compared with, or added to, what depends on lengths, positions and the mask alone; if it is
    the number of rows of a table that positions are looked up in; and if an operator calls it its window.
    """
    view = inlined(model)
    graph = view.graph
    measures = _measures(graph, find_lengths(view))
    thresholds: dict[int, Threshold] = {}
    for threshold in sorted(threshold for node in graph.nodes for threshold in _thresholds(graph, node, measures)):
        first = thresholds.setdefault(threshold.length, threshold)
        ends, changes = first.ends or threshold.ends, first.changes or threshold.changes
        thresholds[threshold.length] = replace(first, ends=ends, changes=changes)
    return tuple(thresholds.values())


def _measures(graph: Graph, sizes: Sizes) -> set[Value]:
    """Return values that depend on lengths, positions and the mask alone."""
    tokens = token_input(graph)
    counted: set[Value] = set()
    for node in graph.nodes:
        if node.op == "Parameter":
            measured = node.outputs[0] != tokens and node.outputs[0].element_type in _WHOLE
        elif node.op in SHAPE_READERS:
            measured = True
        else:
            made = [value for value in node.sources if graph.producer(value).op != "Constant"]
            measured = bool(made) and all(value in counted for value in made)
        if measured:
            counted.update(value for value in node.outputs if not _is_fixed(sizes, value))
    return counted


def _is_fixed(sizes: Sizes, value: Value) -> bool:
    content = sizes.content(value)
    return content is not None and all(size.op == "number" for size in content)


def _thresholds(graph: Graph, node: Node, measures: set[Value]) -> list[Threshold]:
    numbers = [(float(node.attributes[name]), False) for name in _WINDOWS if node.attributes.get(name)]
    if any(value in measures for value in node.sources):
        if node.op in _COMPARING:
            constants = [(value.element_type in REALS, fold_scalar(graph, value)) for value in node.sources]
            # Numbers that hide a score are not lengths.
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
    """Return the number added to positions before their look-up; 0 without one."""
    node = graph.producer(graph.look_through(positions, CASTS))
    added = [fold_scalar(graph, value) for value in node.inputs] if node.op == "Add" else []
    return next((number for number in added if number is not None), 0.0)
