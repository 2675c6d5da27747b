"""Find halves of caches: inputs like a past without a present, and outputs like a present without a past."""

from __future__ import annotations

from collections.abc import Collection

from graphpass.analysis.caches.pairs import MOVES_POSITIONS, Pair, may_be_past
from graphpass.ir.graph import Graph, Value
from graphpass.ir.operators import INNER_CACHES, LOOP_ENTRIES, LOOP_EXITS, MOVES

__all__ = ["unpaired_inputs", "unpaired_outputs"]

Places = Collection[tuple[int, int]]
"""Values (node index, port) that attention reads as key or value."""


def unpaired_inputs(
    graph: Graph, pairs: tuple[Pair, ...], linear: tuple[Pair, ...], operands: Places
) -> tuple[str, ...]:
    """Return inputs like a past: attention reads them with something appended, or they enter as linear caches do.

    Args:
        graph: The graph.
        pairs: The tensors that the model carries.
        linear: Those of them that are linear caches.
        operands: Values that attention reads as key or value.
    """
    paired = {pair.read.index for pair in pairs}
    known = {entry for pair in linear for entry in _entries(graph, pair.past)}
    return tuple(
        node.name
        for node in graph.of_op("Parameter")
        if node.index not in paired
        and may_be_past(node.outputs[0])
        and (
            _is_appended(graph, node.outputs[0], operands)
            or _enters_operator(graph, node.outputs[0])
            or not known.isdisjoint(_entries(graph, node.outputs[0]))
        )
    )


def unpaired_outputs(
    graph: Graph, pairs: tuple[Pair, ...], linear: tuple[Pair, ...], operands: Places
) -> tuple[str, ...]:
    """Return outputs like a present: attention reads their content, or they leave as linear caches do.

    Args:
        graph: The graph.
        pairs: The tensors that the model carries.
        linear: Those of them that are linear caches.
        operands: Values that attention reads as key or value.
    """
    written = {pair.write.index for pair in pairs if pair.write is not None}
    known = {_exit(graph, pair.present) for pair in linear if pair.present is not None}
    return tuple(
        node.name
        for node in graph.of_op("Result")
        for value in node.inputs
        if node.index not in written
        and value is not None
        and (
            _is_read_by_attention(graph, value, operands)
            or _leaves_operator(graph, value)
            or _exit(graph, value) in known
        )
    )


def _is_appended(graph: Graph, value: Value, operands: Places) -> bool:
    way = MOVES_POSITIONS | LOOP_ENTRIES
    uses = graph.forward([value], lambda use: use.node.outputs if use.node.op in way and use.port == 0 else ())
    return any(use.node.op == "Concat" and (use.node.index, 0) in operands for use in uses)


def _enters_operator(graph: Graph, value: Value) -> bool:
    """Return whether an operator with a cache inside reads ``value`` as its past."""
    return any(use.port == past for use in graph.uses(value) for past, _ in INNER_CACHES.get(use.node.op, ()))


def _leaves_operator(graph: Graph, value: Value) -> bool:
    """Return whether ``value`` is the present of an operator with a cache inside."""
    return any(value.port == present for _, present in INNER_CACHES.get(graph.producer(value).op, ()))


def _is_read_by_attention(graph: Graph, value: Value, operands: Places) -> bool:
    """Return whether attention reads ``value``, or what it is a layout of."""
    ways = MOVES | LOOP_EXITS
    found = graph.look_through(value, lambda node: node.op in ways and (node.index, 0) not in operands)
    return (found.node, found.port) in operands


Signature = tuple[object, ...]


def _sizes(value: Value) -> Signature:
    """Return type and fixed sizes of a linear cache."""
    return (value.element_type, *(value.shape or ())[1:])


def _entries(graph: Graph, value: Value) -> set[Signature]:
    """Return the sizes of a linear past, with each operator and port that reads it."""
    return {(_sizes(value), use.node.op, use.port) for use in graph.uses(value) if use.node.op != "ShapeOf"}


def _exit(graph: Graph, value: Value) -> Signature:
    """Return the sizes of a linear present and its producer."""
    return _sizes(value), graph.producer(value).op
