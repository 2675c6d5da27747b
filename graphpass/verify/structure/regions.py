"""Operators of the candidate that are not proven equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from graphpass.analysis.symbolic.elements import UnknownError
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.ir.operators import NO_DATA, SOURCES
from graphpass.verify.structure.definition import Definition
from graphpass.verify.structure.tensors import DefinedTensors
from graphpass.verify.structure_proof import Region

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Node, Value

Key: TypeAlias = Definition | Expr
"""Identity of a tensor across models: its definition or expression."""

Form: TypeAlias = "tuple[Key, Sequence[Expr]]"
"""Identity of a tensor, and its indices in the order of the definition; no indices for other expressions."""

#: Maximum number of listed operators.
_LISTED = 12

#: Operators that are not counted, since they compute no data.
_STILL = NO_DATA | SOURCES | {"Result", "Assign"}


def upstream_operators(graph: Graph, results: Iterable[Value]) -> list[Node]:
    """Return the operators that compute ``results``, without those that compute no data.

    Args:
        graph: Graph of one model.
        results: Values of the graph.
    """
    return [node for node in graph.backward(results, lambda node: node.inputs) if node.op not in _STILL]


@dataclass(frozen=True, slots=True)
class Unequal:
    """The candidate's operators between equal values and results that are not proven equal.

    Attributes:
        operators: The operators.
        regions: Those operators whose inputs are all equal; at most 12.
        frontier: The equal values that the operators read, without shapes.
    """

    operators: tuple[Node, ...]
    regions: tuple[Region, ...]
    frontier: tuple[Value, ...]


def unequal_operators(sides: tuple[DefinedTensors, ...], results: Iterable[Value]) -> Unequal:
    """Return the candidate's operators between equal values and ``results``.

    A value is equal if the reference has a tensor with the same elements, in any order of axes.

    Args:
        sides: Reference and candidate.
        results: The candidate's values that are not proven equal.
    """
    reference, candidate = sides
    known = {key for _, (key, _) in forms_of(reference)}
    nodes: list[Node] = []
    graph = candidate.graph

    def open_inputs(node: Node) -> list[Value]:
        if node.op in _STILL - {"Result", "Assign"}:
            return []
        nodes.append(node)
        return [value for value in node.sources if _is_open(value)]

    asked: dict[Value, bool] = {}

    def _is_open(value: Value) -> bool:
        if value not in asked:
            is_still = graph.producer(value).op in NO_DATA
            form = None if is_still else form_of(candidate, value)
            asked[value] = not is_still and (form is None or form[0] not in known)
        return asked[value]

    for _ in graph.backward([value for value in results if _is_open(value)], open_inputs):
        pass
    places = {node.index for node in nodes}
    first = sorted(
        (node for node in nodes if not any(value.node in places for value in node.sources)), key=lambda node: node.index
    )
    regions = tuple(_region(candidate, node) for node in first[:_LISTED])
    frontier = tuple(value for value, is_open in asked.items() if not (is_open or graph.producer(value).op in NO_DATA))
    return Unequal(tuple(nodes), regions, frontier)


def forms_of(tensors: DefinedTensors) -> Iterator[tuple[Value, Form]]:
    """Yield the tensors that a model computes, each with its form."""
    for node in tensors.graph.nodes:
        for value in node.outputs if node.op not in {"Constant", "Result", "Assign"} else ():
            if (form := form_of(tensors, value)) is not None:
                yield value, form


def form_of(tensors: DefinedTensors, value: Value) -> Form | None:
    """Return the form of a tensor, independent of the order of axes; ``None`` if unknown.

    Args:
        tensors: Tensors of one model.
        value: Value of this model.
    """
    try:
        expr = tensors.whole(value)
    except UnknownError:
        return None
    if expr.sort != "real":
        return expr, ()
    tensor = tensors.definitions.abstract("tensor", (), (expr,), ())
    source = tensor.args[0]
    return (source, tensor.args[1:]) if isinstance(source, Definition) else (tensor, ())


def _region(tensors: DefinedTensors, node: Node) -> Region:
    reason = next(
        (miss.reason for miss in tensors.misses.values() if miss.node is node), "the reference has no equal value"
    )
    return Region(node.name, node.op, reason)
