"""Find caches of cross attention that an encoder fills."""

from __future__ import annotations

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.ir.graph import Node
from graphpass.ir.model import Model
from graphpass.ir.values import REALS


def filled_caches(model: Model) -> tuple[Node, ...]:
    """Return the outputs ``[batch, heads, positions, head_dim]`` of an encoder; none of a model with caches."""
    if analyze_caches(model).caches:
        return ()
    results = ((result, result.source()) for result in model.graph.of_op("Result"))
    return tuple(result for result, value in results if value.rank == 4 and value.element_type in REALS)
