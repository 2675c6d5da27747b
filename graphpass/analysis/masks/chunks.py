"""Find attention within chunks of positions."""

from __future__ import annotations

from graphpass.ir.constants import fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import CASTS, KEEPS_ORDER, SHAPE_READERS

_ROUNDS = CASTS | KEEPS_ORDER | {"Floor"}


def chunk_comparison(graph: Graph, mask: Value | None) -> tuple[Node, int] | None:
    """Return the comparison of chunks of key and query in ``mask``, and the chunk's size."""
    if mask is None:
        return None
    for node in graph.backward([mask], lambda node: () if node.op in SHAPE_READERS else node.inputs):
        if node.op in {"Equal", "NotEqual"}:
            divided = [graph.producer(graph.look_through(side, _ROUNDS)) for side in node.inputs if side is not None]
            sizes = {fold_scalar(graph, part.input(1)) for part in divided if part.op == "Divide"}
            if [part.op for part in divided] == ["Divide", "Divide"] and len(sizes) == 1 and (size := sizes.pop()):
                return node, int(size)
    return None
