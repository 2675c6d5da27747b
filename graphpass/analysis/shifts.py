"""Finds the windows of convolutions: states into which new columns are shifted."""

from __future__ import annotations

from graphpass.analysis.flat import flat_caches
from graphpass.caches import Inventory
from graphpass.graph import Graph, Node, Value
from graphpass.model import Model

__all__ = ["packed_windows", "shifted_in"]


def packed_windows(model: Model, inventory: Inventory) -> set[int]:
    """How many columns the windows have that lie in flat tensors; of others the cache's own shape says so."""
    states = [state for flat in flat_caches(model, inventory).values() for state in flat.states]
    return {state.sizes[-1] for state in states if any(shifted_in(model.graph, past) for past in state.pasts)}


def shifted_in(graph: Graph, past: Value) -> Node | None:
    """The Concat or Roll that shifts new columns into a convolution's window."""
    pending, seen = [past], set()
    while pending:
        for use in graph.uses(pending.pop()):
            if use.node.index in seen:
                continue
            seen.add(use.node.index)
            if use.node.op in {"Concat", "Roll", "CausalConvWithState"}:
                return use.node
            if (
                use.node.op in {"Convert", "Identity", "Gather", "Slice", "StridedSlice", "Carried", "Sliced"}
                and use.port == 0
            ):
                pending.extend(use.node.outputs)
    return None
