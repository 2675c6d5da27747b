"""Finds the loop that carries a tensor, and what updates the tensor in the loop's body.

`graphpass.analysis.bodies` says how a loop looks in the view that analyses work on.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphpass.analysis.pairs import Pair
from graphpass.graph import Graph, Node, Value

__all__ = ["carried_through"]

#: Operators that only lay out, cut or join what enters a loop or leaves it.
_LAYOUT = frozenset(
    {"Concat", "Convert", "Gather", "Identity", "If", "Reshape", "Slice", "Split", "Squeeze", "StridedSlice"}
    | {"Transpose", "Unsqueeze", "VariadicSplit", "Carried", "Sliced", "Final", "Stacked"}
)

#: Operators that do not say how a state is updated: what matters is what they are given.
_SILENT = frozenset({"Convert", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Final"})


def carried_through(graph: Graph, pair: Pair) -> tuple[Node, Node] | None:
    """The innermost loop that carries ``pair`` from its past to its present, and what updates it there.

    Args:
        graph: As `graphpass.analysis.bodies.inlined` shows it.
        pair: What the model carries.

    Returns:
        The ``Carried`` by which it enters the loop, and the operator of the body that makes what the next iteration
        finds; ``None`` where no loop carries it.
    """
    if pair.present is None:
        return None
    entered = _reached(graph, pair.past)
    found: list[tuple[Node, Node]] = []
    for final in _leading_to(graph, pair.present):
        start = final.inputs[1] if final.op == "Final" and len(final.inputs) == 2 else None
        if start is not None and start.node in entered and final.inputs[0] not in {None, start}:
            found.append((graph.producer(start), _maker(graph, final)))
    return max(found, key=lambda pair: pair[0].index, default=None)


def _reached(graph: Graph, value: Value) -> set[int]:
    """The nodes that ``value`` reaches by layout alone."""
    pending, seen = [value], set()
    while pending:
        for use in graph.uses(pending.pop()):
            if use.node.op in _LAYOUT and use.node.index not in seen:
                seen.add(use.node.index)
                pending.extend(use.node.outputs)
    return seen


def _leading_to(graph: Graph, value: Value) -> Iterable[Node]:
    """The nodes from which ``value`` is made by layout alone."""
    pending: list[Value | None] = [value]
    seen: set[int] = set()
    while pending:
        source = pending.pop()
        node = graph.producer(source) if source is not None else None
        if node is not None and node.op in _LAYOUT and node.index not in seen:
            seen.add(node.index)
            pending.extend(node.inputs)
            yield node


def _maker(graph: Graph, final: Node) -> Node:
    node = final
    while node.op in _SILENT and node.inputs[0] is not None:
        node = graph.producer(node.inputs[0])
    return node
