"""Find assignments to slices, ``x[..., start:stop] = update``, as OpenVINO's frontend for PyTorch writes them."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.pattern import Match, op, var
from graphpass.analysis.symbolic.folding import fold_cuts
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import SLICES

_PLACES = op.Reshape(op.Range(0, op.ReduceProd(var("sizes"), ...), 1), var("sizes"))

_ASSIGNED = op.Reshape(
    op.ScatterNDUpdate(
        op.Reshape(var("base"), -1), op.Reshape(var("part"), ...), op.Reshape(var("update"), -1), reduction=None
    ),
    var("sizes"),
)


@dataclass(frozen=True, slots=True)
class AssignedSlice:
    """The assignment of ``update`` to the range ``start:stop`` of ``base`` along ``axis``."""

    base: Value
    update: Value
    axis: int
    start: int
    stop: int


def assigned_slice(graph: Graph, node: Node) -> AssignedSlice | None:
    """Return the assignment that ends in ``node``; ``None`` without one.

    Args:
        graph: The graph.
        node: Any node; only the Reshape of a ScatterNDUpdate's result can match.
    """
    if node.op != "Reshape" or graph.producer(node.source()).op != "ScatterNDUpdate":
        return None
    match = _ASSIGNED.match(graph, node)
    if not isinstance(match, Match) or not _keeps_shape(graph, match["base"], match["sizes"]):
        return None
    part = graph.producer(match["part"])
    cuts = fold_cuts(graph, part) if part.op in SLICES else ()
    if len(cuts) != 1 or not isinstance(_PLACES.match(graph, part.source(), match), Match):
        return None
    cut, rank = cuts[0], match["base"].rank
    axis = cut.axis % rank if rank else 0
    size = match["update"].shape[axis] if match["update"].rank == rank and match["update"].shape else None
    if cut.start is None or cut.start < 0 or cut.step != 1 or not isinstance(size, int):
        return None
    return AssignedSlice(match["base"], match["update"], axis, cut.start, cut.start + size)


def _keeps_shape(graph: Graph, base: Value, sizes: Value) -> bool:
    """Return whether ``sizes`` is the shape of ``base``."""
    maker, counted = graph.producer(base), graph.producer(sizes)
    is_made_so = maker.op in {"Broadcast", "Reshape"} and maker.input(1) == sizes
    return is_made_so or (counted.op == "ShapeOf" and counted.source() == base)
