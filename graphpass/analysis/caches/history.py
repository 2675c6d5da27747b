"""Recognize variables that keep earlier states of others: ``Gather(Concat(Unsqueeze(state), history))``."""

from __future__ import annotations

from graphpass.ir.graph import Graph, Node, Value

__all__ = ["chosen_state", "joined_history"]


def chosen_state(graph: Graph, read: Node) -> Value:
    """Return what a step starts with: the variable, or the state that is chosen among it and its history."""
    value = read.outputs[0]
    for op in ("Unsqueeze", "Concat"):
        following = [use.node for use in graph.uses(value) if use.node.op != "ShapeOf"]
        if len(following) != 1 or following[0].op != op:
            return read.outputs[0]
        value = following[0].outputs[0]
    if not joined_history(graph, value):
        return read.outputs[0]
    chosen = [use.node.outputs[0] for use in graph.uses(value) if use.node.op == "Gather"]
    starts = [use.node.outputs[0] for one in chosen for use in graph.uses(one) if use.node.op == "Squeeze"]
    return starts[0] if len(starts) == 1 else read.outputs[0]


def joined_history(graph: Graph, value: Value | None) -> list[Node]:
    """Return the variables of a state and its history, if ``value`` is a Concat of both, chosen from or not."""
    node = graph.producer(graph.look_through(value, {"Gather"})) if value is not None else None
    if node is None or node.op != "Concat":
        return []
    state, *history = (graph.producer(source) for source in node.inputs if source is not None)
    reads = [graph.producer(graph.look_through(state.outputs[0], {"Unsqueeze"})), *history]
    return reads if len(reads) == 2 and all(read.op == "ReadValue" for read in reads) else []
