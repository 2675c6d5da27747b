"""Finds the loop that carries a tensor or takes it apart, and what updates the tensor in the loop's body.

`graphpass.ir.bodies` says how a loop looks in the view that analyses work on.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphpass.analysis.attention.axis_trace import Via
from graphpass.analysis.caches.pairs import Pair
from graphpass.ir.graph import Graph, Node, Value

__all__ = ["sliced_axes", "takes_part_in_turn", "updated_in_loop"]

#: Operators that only lay out, cut or join what enters a loop or leaves it.
_LAYOUT = frozenset(
    {"Concat", "Convert", "Gather", "Identity", "If", "Reshape", "Slice", "Split", "Squeeze", "StridedSlice"}
    | {"Transpose", "Unsqueeze", "VariadicSplit", "Carried", "Sliced", "Final", "Stacked"}
)

#: Operators that do not say how a state is updated: what matters is what they are given.
_SILENT = frozenset({"Convert", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose"} | {"Final", "Stacked"})


def updated_in_loop(graph: Graph, pair: Pair) -> str | None:
    """How the body of a loop updates ``pair``, in words; of the innermost loop, where there are several.

    Args:
        graph: As `graphpass.ir.bodies.inlined` shows it.
        pair: What the model carries.

    Returns:
        ``None`` where no loop carries it from its past to its present, or slices and stacks it.
    """
    if pair.present is None:
        return None
    entered = _reached(graph, pair.past)
    found: list[tuple[int, str]] = []
    for node in _leading_to(graph, pair.present):
        start = node.inputs[1] if node.op == "Final" and len(node.inputs) == 2 else None
        if start is not None and start.node in entered and node.inputs[0] not in {None, start}:
            words = f"carried through {node.called}, whose body replaces it in each iteration by"
            found.append((start.node, f"{words} {_maker(graph, node).called}"))
        elif node.op == "Stacked":
            parts = [index for index in entered if _takes_in_turn(graph, graph.nodes[index], node)]
            words = f"taken apart by {node.called}, whose body replaces a part in each iteration by"
            found += [(index, f"{words} {_maker(graph, node).called}") for index in parts[:1]]
    return max(found, default=(0, None))[1]


def sliced_axes(graph: Graph, pair: Pair) -> dict[int, Node]:
    """The axes of the past along which a loop takes it apart and makes the present again, and what takes the parts."""
    if pair.present is None:
        return {}
    stacked = [node for node in _leading_to(graph, pair.present) if node.op == "Stacked"]
    found: dict[int, Node] = {}
    pending = [pair.past] if stacked else []
    while pending:
        for use in graph.uses(pending.pop()):
            if any(_takes_in_turn(graph, use.node, node) for node in stacked):
                found[use.node.attributes["axis"]] = use.node
            elif use.port == 0 and _keeps_axes(use.node):
                pending += use.node.outputs
    return found


def _keeps_axes(node: Node) -> bool:
    """Whether ``node`` converts what it reads or picks entries by a list, as the beams of a batch are."""
    if node.op == "Gather":
        return node.inputs[1] is not None and node.inputs[1].rank == 1
    return node.op in {"Convert", "Identity"}


def takes_part_in_turn(graph: Graph, via: Via) -> bool:
    """Whether each iteration of a loop takes a part of its own."""
    return via.kind == "part" and (via.node.op == "Sliced" or _counted(graph, via.node) is not None)


def _counted(graph: Graph, gather: Node) -> Node | None:
    """The number of the iteration, or another one that a loop carries, by which a Gather takes a part."""
    index = gather.inputs[1] if gather.op == "Gather" else None
    while index is not None:
        node = graph.producer(index)
        if node.op in {"Iteration", "Carried"}:
            return node
        index = node.inputs[0] if node.op in _SILENT and node.inputs else None
    return None


def _takes_in_turn(graph: Graph, node: Node, stacked: Node) -> bool:
    """Whether ``node`` takes parts in the loop of ``stacked``, along the axis along which that one stacks."""
    loop = node if node.op == "Sliced" else _counted(graph, node)
    same = loop is not None and loop.called == stacked.called
    return same and node.attributes.get("axis") == stacked.attributes["axis"]


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
