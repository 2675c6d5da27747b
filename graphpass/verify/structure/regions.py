"""Operators of the candidate that are not shown to be equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from graphpass.analysis.symbolic.elements import UnknownError
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.ir.operators import NO_DATA, SOURCES
from graphpass.verify.comparison import Region
from graphpass.verify.structure.definitions import Definition
from graphpass.verify.structure.tensors import DefinedTensors

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Node, Value

Key: TypeAlias = Definition | Expr
"""What a tensor is: alike in both models if they compute it alike."""

Form: TypeAlias = "tuple[Key, Sequence[Expr]]"
"""What a tensor is, and its indices in the order of the common form, if it has one."""

#: More are not listed.
_LISTED = 12

#: Compute nothing.
_STILL = NO_DATA | SOURCES | {"Result", "Assign"}


def operators_of(graph: Graph, results: Iterable[Value]) -> list[Node]:
    """Return the operators that ``results`` are computed by."""
    return [node for node in graph.backward(results, lambda node: node.inputs) if node.op not in _STILL]


@dataclass(frozen=True, slots=True)
class Unequal:
    """The candidate's operators upstream of unequal results, down from equal values.

    Attributes:
        operators: The operators.
        regions: The first of them, none of which reads another's result.
        frontier: Equal values that they read, constants and shapes aside.
    """

    operators: tuple[Node, ...]
    regions: tuple[Region, ...]
    frontier: tuple[Value, ...]


def unequal_operators(sides: tuple[DefinedTensors, ...], results: Iterable[Value]) -> Unequal:
    """Return the candidate's operators upstream of unequal results.

    A value of the candidate is equal if the reference has a tensor of the same elements, in any order of axes.
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
    """Yield the tensors that a model computes, and the form of each."""
    for node in tensors.graph.nodes:
        for value in node.outputs if node.op not in {"Constant", "Result", "Assign"} else ():
            if (form := form_of(tensors, value)) is not None:
                yield value, form


def form_of(tensors: DefinedTensors, value: Value) -> Form | None:
    """Return what a tensor is, in any order of axes, and its indices."""
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
