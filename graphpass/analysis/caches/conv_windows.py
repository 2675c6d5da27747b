"""Find the windows of convolutions: states into which new columns are shifted."""

from __future__ import annotations

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import CASTS, LOOP_ENTRIES, SLICES

__all__ = ["shifted_in"]

#: Leave a window a window: conversions, reordering by beams, cuts.
_WAY = CASTS | SLICES | {"Gather"}


def shifted_in(graph: Graph, past: Value, *, in_loops: bool = True) -> Node | None:
    """Return the Concat or Roll that shifts new columns into a convolution's window.

    Args:
        graph: The graph.
        past: The window before a step.
        in_loops: Search bodies of loops, too, which shift once a token.
    """
    way = _WAY | LOOP_ENTRIES if in_loops else _WAY
    uses = graph.forward([past], lambda use: use.node.outputs if use.node.op in way and use.port == 0 else ())
    return next((use.node for use in uses if use.node.op in {"Concat", "Roll", "CausalConvWithState"}), None)
