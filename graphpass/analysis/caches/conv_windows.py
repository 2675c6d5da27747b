"""Finds the windows of convolutions: states into which new columns are shifted."""

from __future__ import annotations

from graphpass.ir.graph import Graph, Node, Value

__all__ = ["shifted_in"]

#: Operators through which a window is still a window.
_WAY = frozenset({"Convert", "Identity", "Gather", "Slice", "StridedSlice"})

#: How it gets into the body of a loop.
_INTO_LOOPS = frozenset({"Carried", "Sliced"})


def shifted_in(graph: Graph, past: Value, *, in_loops: bool = True) -> Node | None:
    """The Concat or Roll that shifts new columns into a convolution's window.

    Args:
        graph: Where to look.
        past: The window before a step.
        in_loops: Look into bodies of loops, too, which shift once a token.
    """
    way = _WAY | _INTO_LOOPS if in_loops else _WAY
    pending, seen = [past], set()
    while pending:
        for use in graph.uses(pending.pop()):
            if use.node.index in seen:
                continue
            seen.add(use.node.index)
            if use.node.op in {"Concat", "Roll", "CausalConvWithState"}:
                return use.node
            if use.node.op in way and use.port == 0:
                pending.extend(use.node.outputs)
    return None
