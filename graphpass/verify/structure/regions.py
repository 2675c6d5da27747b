"""Operators of the candidate that are not shown to be equal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from graphpass.analysis.symbolic.elements import UnknownError
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.ir.operators import NO_DATA, SOURCES
from graphpass.verify.comparison import Region
from graphpass.verify.structure.definitions import Definition
from graphpass.verify.structure.tensors import Tensors

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Node, Value

#: More are not listed.
_LISTED = 12

#: Compute nothing.
_STILL = NO_DATA | SOURCES | {"Result", "Assign"}


def operators_of(graph: Graph, results: Iterable[Value]) -> list[Node]:
    """Return the operators that ``results`` are computed by."""
    return [node for node in graph.backward(results, lambda node: node.inputs) if node.op not in _STILL]


def unequal_operators(sides: tuple[Tensors, ...], results: Iterable[Value]) -> tuple[list[Node], tuple[Region, ...]]:
    """Return the candidate's operators upstream of unequal results, down from equal values.

    A value of the candidate is equal if the reference has a tensor of the same elements, in any order of axes.
    """
    reference, candidate = sides
    known = {
        key
        for node in reference.graph.nodes
        if node.op not in {"Constant", "Result", "Assign"}
        for value in node.outputs
        if (key := _key(reference, value)) is not None
    }
    found: list[Node] = []
    graph = candidate.graph

    def open_inputs(node: Node) -> list[Value]:
        if node.op in _STILL - {"Result", "Assign"}:
            return []
        found.append(node)
        return [one for one in node.inputs if one is not None and _is_open(one)]

    asked: dict[Value, bool] = {}

    def _is_open(value: Value) -> bool:
        if value not in asked:
            is_still = graph.producer(value).op in NO_DATA
            asked[value] = not is_still and _key(candidate, value) not in known
        return asked[value]

    for _ in graph.backward([one for one in results if _is_open(one)], open_inputs):
        pass
    places = {node.index for node in found}
    first = sorted(
        (node for node in found if not any(one is not None and one.node in places for one in node.inputs)),
        key=lambda node: node.index,
    )
    return found, tuple(_region(candidate, node) for node in first[:_LISTED])


def _key(tensors: Tensors, value: Value) -> Definition | Expr | None:
    """Return what a tensor is, without the order of its axes."""
    try:
        expr = tensors.whole(value)
    except UnknownError:
        return None
    if expr.sort != "real":
        return expr
    found = tensors.definitions.abstract("tensor", (), (expr,), ())
    source = found.args[0]
    return source if isinstance(source, Definition) else found


def _region(tensors: Tensors, node: Node) -> Region:
    reason = next(
        (miss.reason for miss in tensors.misses.values() if miss.node is node), "the reference has no equal value"
    )
    return Region(node.name, node.op, reason)
