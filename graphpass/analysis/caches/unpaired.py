"""Finds halves of caches: inputs like a past that have no present, and outputs like a present that have no past."""

from __future__ import annotations

from collections.abc import Collection

from graphpass.analysis.caches.pairs import Pair, may_be_past
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import INNER_CACHES

__all__ = ["unpaired_inputs", "unpaired_outputs"]

#: Operators between a past and the Concat that appends to it.
_BEFORE_APPEND = frozenset(
    {"Convert", "Identity", "Gather", "ScatterElementsUpdate", "Slice", "StridedSlice", "Carried", "Sliced"}
)

#: Operators between what attention reads and an output with the same content.
_BEFORE_OUTPUT = frozenset({"Convert", "Identity", "Transpose", "Final", "Stacked"})

#: Values (node index, port) that attention reads as key or value.
Places = Collection[tuple[int, int]]


def unpaired_inputs(
    graph: Graph, pairs: tuple[Pair, ...], linear: tuple[Pair, ...], operands: Places
) -> tuple[str, ...]:
    """Inputs that look like a past: attention reads them with something appended, or they enter as linear caches do.

    Args:
        graph: The model.
        pairs: The tensors that it carries.
        linear: Those of them that are linear caches.
        operands: What attention reads as key or value.
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
    """Outputs that a cache's present would be: attention reads their content, or they leave as linear caches do.

    Args:
        graph: The model.
        pairs: The tensors that it carries.
        linear: Those of them that are linear caches.
        operands: What attention reads as key or value.
    """
    written = {pair.write.index for pair in pairs if pair.write is not None}
    known = {_exit(graph, pair.present) for pair in linear if pair.present is not None}
    names = []
    for node in graph.of_op("Result"):
        value = node.inputs[0]
        if node.index in written or value is None:
            continue
        if (
            _is_read_by_attention(graph, value, operands)
            or _leaves_operator(graph, value)
            or _exit(graph, value) in known
        ):
            names.append(node.name)
    return tuple(names)


def _is_appended(graph: Graph, value: Value, operands: Places) -> bool:
    pending, seen = [value], set()
    while pending:
        for use in graph.uses(pending.pop()):
            if use.node.op == "Concat" and (use.node.index, 0) in operands:
                return True
            if use.node.op in _BEFORE_APPEND and use.port == 0 and use.node.index not in seen:
                seen.add(use.node.index)
                pending.extend(use.node.outputs)
    return False


def _enters_operator(graph: Graph, value: Value) -> bool:
    """Whether an operator with a cache inside reads ``value`` as its past."""
    return any(use.port == past for use in graph.uses(value) for past, _ in INNER_CACHES.get(use.node.op, ()))


def _leaves_operator(graph: Graph, value: Value) -> bool:
    """Whether ``value`` is the present of an operator with a cache inside."""
    return any(value.port == present for _, present in INNER_CACHES.get(graph.producer(value).op, ()))


def _is_read_by_attention(graph: Graph, value: Value, operands: Places) -> bool:
    while (value.node, value.port) not in operands:
        node = graph.producer(value)
        if node.op not in _BEFORE_OUTPUT or node.inputs[0] is None:
            return False
        value = node.inputs[0]
    return True


Signature = tuple[object, ...]


def _sizes(value: Value) -> Signature:
    """Rank, fixed sizes and type of a linear cache."""
    return (value.element_type, *(value.shape or ())[1:])


def _entries(graph: Graph, value: Value) -> set[Signature]:
    """Where a linear past is read: its sizes, an operator and its port."""
    return {(_sizes(value), use.node.op, use.port) for use in graph.uses(value) if use.node.op != "ShapeOf"}


def _exit(graph: Graph, value: Value) -> Signature:
    """What a linear present looks like: its sizes and who makes it."""
    node: Node = graph.producer(value)
    return _sizes(value), node.op
