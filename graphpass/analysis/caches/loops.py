"""Find the loop that carries or slices a tensor (`graphpass.ir.bodies`), and the update in it."""

from __future__ import annotations

from graphpass.analysis.attention.axis_trace import PathStep
from graphpass.analysis.caches.pairs import Pair
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.operators import CASTS, LAYOUT, LOOP_ENTRIES, LOOP_EXITS, MOVES, PICKS

#: Operators that lay out, slice or join values at the entry or exit of a loop.
_LAYOUT = LAYOUT | PICKS | LOOP_ENTRIES | LOOP_EXITS | {"Concat", "If"}

#: Operators after the update of a state, which they do not change.
_SILENT = MOVES | LOOP_EXITS


def updated_in_loop(graph: Graph, pair: Pair) -> str | None:
    """Describe the update of ``pair`` by the innermost loop; ``None`` if no loop carries it.

    Args:
        graph: A graph with inlined bodies, see `graphpass.ir.bodies`.
        pair: The carried tensor; no loop carries it if it has no present.

    Returns:
        A clause for `Cache.evidence`.
    """
    if pair.present is None:
        return None
    reached = graph.forward([pair.past], lambda use: use.node.outputs if use.node.op in _LAYOUT else ())
    entered = {use.node.index for use in reached if use.node.op in _LAYOUT}
    updated: list[tuple[int, str]] = []
    for node in _leading_to(graph, pair.present):
        start = node.inputs[1] if node.op == "Final" and len(node.inputs) == 2 else None
        if start is not None and start.node in entered and node.inputs[0] not in {None, start}:
            words = f"carried through {node.called}, whose body replaces it in each iteration by"
            updated.append((start.node, f"{words} {_updater(graph, node).called}"))
        elif node.op == "Stacked":
            parts = [index for index in entered if _takes_in_turn(graph, graph.nodes[index], node)]
            words = f"sliced by {node.called}, whose body replaces a part in each iteration by"
            updated += [(index, f"{words} {_updater(graph, node).called}") for index in parts[:1]]
    return max(updated, default=(0, None))[1]


def sliced_axes(graph: Graph, pair: Pair) -> dict[int, Node]:
    """Return the slicing nodes by axis along which a loop slices past and stacks present.

    Args:
        graph: A graph with inlined bodies, see `graphpass.ir.bodies`.
        pair: The carried tensor; the result is empty if it has no present.
    """
    if pair.present is None:
        return {}
    stacked = [node for node in _leading_to(graph, pair.present) if node.op == "Stacked"]

    def takes(use: Use) -> bool:
        return any(_takes_in_turn(graph, use.node, node) for node in stacked)

    whole = graph.forward(
        [pair.past] if stacked else [],
        lambda use: use.node.outputs if use.port == 0 and _keeps_axes(use.node) and not takes(use) else (),
    )
    return {use.node.attributes["axis"]: use.node for use in whole if takes(use)}


def _keeps_axes(node: Node) -> bool:
    if node.op == "Gather":
        return node.inputs[1] is not None and node.inputs[1].rank == 1
    return node.op in CASTS


def takes_part_in_turn(graph: Graph, step: PathStep) -> bool:
    """Return whether each iteration of a loop selects a different part.

    Args:
        graph: A graph with inlined bodies, see `graphpass.ir.bodies`.
        step: A step on the path from an attention's operand to a cache.
    """
    return step.kind == "part" and (step.node.op == "Sliced" or _counted(graph, step.node) is not None)


def _counted(graph: Graph, gather: Node) -> Node | None:
    """Return the iteration number or carried value that indexes a Gather."""
    index = gather.input(1) if gather.op == "Gather" else None
    node = graph.producer(graph.look_through(index, _SILENT)) if index is not None else None
    return node if node is not None and node.op in {"Iteration", "Carried"} else None


def _takes_in_turn(graph: Graph, node: Node, stacked: Node) -> bool:
    loop = node if node.op == "Sliced" else _counted(graph, node)
    same = loop is not None and loop.called == stacked.called
    return same and node.attributes.get("axis") == stacked.attributes["axis"]


def _leading_to(graph: Graph, value: Value) -> list[Node]:
    upstream = graph.backward([value], lambda node: node.inputs if node.op in _LAYOUT else ())
    return [node for node in upstream if node.op in _LAYOUT]


def _updater(graph: Graph, final: Node) -> Node:
    return graph.producer(graph.look_through(final.outputs[0], _SILENT))
