"""Find halves of caches: inputs like a past without a present, and outputs like a present without a past."""

from __future__ import annotations

from collections.abc import Collection

from graphpass.analysis.caches.pairs import MOVES_POSITIONS, Pair, may_be_past
from graphpass.ir.graph import Graph, Value
from graphpass.ir.operators import INNER_CACHES, LOOP_ENTRIES, LOOP_EXITS, MOVES

__all__ = ["unpaired_ports"]

#: Operators between an input and the Concat that appends to it, and between attention's operand and an output.
_INPUT_WAY, _OUTPUT_WAY = MOVES_POSITIONS | LOOP_ENTRIES, MOVES | LOOP_EXITS


def unpaired_ports(
    graph: Graph, pairs: tuple[Pair, ...], linear: Collection[str], operands: Collection[tuple[int, int]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return inputs like a past, and outputs like a present.

    Attention reads such inputs with something appended, and the content of such outputs; or they enter and leave as
    linear caches do.

    Args:
        graph: The graph.
        pairs: The tensors that the model carries.
        linear: Names of those that are linear caches.
        operands: Values (node index, port) that attention reads as key or value.
    """
    reads = {pair.read.index for pair in pairs}
    writes = {pair.write.index for pair in pairs if pair.write is not None}
    carried = [pair for pair in pairs if pair.read.name in linear]
    entries = {entry for pair in carried for entry in _entries(graph, pair.past)}
    exits = {_exit(graph, pair.present) for pair in carried if pair.present is not None}

    def is_past(value: Value) -> bool:
        uses = graph.forward(
            [value], lambda use: use.node.outputs if use.node.op in _INPUT_WAY and use.port == 0 else ()
        )
        return (
            any(use.node.op == "Concat" and (use.node.index, 0) in operands for use in uses)
            or any(use.port == past for use in graph.uses(value) for past, _ in INNER_CACHES.get(use.node.op, ()))
            or not entries.isdisjoint(_entries(graph, value))
        )

    def is_present(value: Value) -> bool:
        content = graph.look_through(value, lambda node: node.op in _OUTPUT_WAY and (node.index, 0) not in operands)
        inner = INNER_CACHES.get(graph.producer(value).op, ())
        return (
            (content.node, content.port) in operands
            or any(value.port == present for _, present in inner)
            or _exit(graph, value) in exits
        )

    inputs = [node for node in graph.of_op("Parameter") if node.index not in reads and may_be_past(node.outputs[0])]
    outputs = [node for node in graph.of_op("Result") if node.index not in writes]
    return (
        tuple(node.name for node in inputs if is_past(node.outputs[0])),
        tuple(node.name for node in outputs if is_present(node.source())),
    )


def _sizes(value: Value) -> tuple[object, ...]:
    """Return type and fixed sizes of a linear cache."""
    return (value.element_type, *(value.shape or ())[1:])


def _entries(graph: Graph, value: Value) -> set[tuple[object, ...]]:
    """Return the sizes of a linear past, with each operator and port that reads it."""
    return {(_sizes(value), use.node.op, use.port) for use in graph.uses(value) if use.node.op != "ShapeOf"}


def _exit(graph: Graph, value: Value) -> tuple[object, ...]:
    """Return the sizes of a linear present and its producer."""
    return _sizes(value), graph.producer(value).op
