"""Find experts that each compute all tokens in batched products, and are weighted afterwards."""

from __future__ import annotations

from graphpass.analysis.experts.layers import is_zero
from graphpass.analysis.pattern import Match, look_through, op, var
from graphpass.analysis.symbolic.folding import fold
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import MissError
from graphpass.ir.operators import CASTS, KEEPS_ORDER
from graphpass.ir.values import fixed_size

_GATES = op.ScatterElementsUpdate(
    var("nothing"), var("chosen") & op.TopK(..., port=1), var("weights"), ..., axis=1, reduction=None, name="gates"
)


#: The sum over experts of results ``[experts, tokens, hidden]``, each times its weight.
DENSE = op.ReduceSum(
    op.Multiply(
        var("results"),
        var("by_expert") & look_through(op.Transpose(look_through(_GATES, CASTS), ..., order=(1, 0)), KEEPS_ORDER),
        name="weighted",
    ),
    ...,
)


def dense_rows(graph: Graph, rows: Value, count: int) -> Value:
    """Return the tokens that ``rows`` holds once for each expert; raise `MissError` on others.

    Tiled rows are those of the first expert, of the second, and so on.
    """
    node = graph.producer(rows)
    width = fixed_size(rows, -1)
    if rows.rank == 3 and node.op == "Reshape" and fixed_size(rows, 0) == count:
        copies = graph.producer(node.source())
        times = fold(graph, copies.input(1)) if copies.op == "Tile" else None
        if times is not None and times.tolist() == [count, 1]:
            return _same_width(node, _uncopied(graph, copies.source()), width)
    if rows.rank == 3 and node.op == "Broadcast":
        node = graph.producer(node.source())
    if rows.rank == 3 and node.op == "Unsqueeze" and node.attributes.get("axes") == (0,):
        return _same_width(node, node.source(), width)
    if rows.rank == 2:
        return rows
    raise MissError(node, "it does not hold all tokens once for each expert")


def _uncopied(graph: Graph, value: Value) -> Value:
    """Look through a Broadcast to ones, which changes nothing."""
    node = graph.producer(value)
    shape = fold(graph, node.input(1)) if node.op == "Broadcast" else None
    return node.source() if shape is not None and (shape == 1).all() and shape.size <= (value.rank or 0) else value


def _same_width(node: Node, tokens: Value, width: int | None) -> Value:
    if tokens.rank != 2 or width is None or fixed_size(tokens, 1) != width:
        raise MissError(node, "it does not hold all tokens once for each expert")
    return tokens


def dense_result(graph: Graph, match: Match) -> tuple[Value, int]:
    """Return the results ``[experts, tokens, hidden]`` of a match of `DENSE`, and the number of experts.

    Raises:
        MissError: Sums or weights are of other axes.
    """
    node, gates = match.node, match.nodes["gates"]
    axes, total = fold(graph, node.input(1)), match["results"]
    if axes is None or axes.tolist() != [0] or node.attributes.get("keeps_axes") is not False:
        raise MissError(node, "it does not add up all experts")
    count = fixed_size(gates.outputs[0], 1)
    result = graph.look_through(total, KEEPS_ORDER)
    width = fixed_size(total, -1)
    if count is None or not is_zero(graph, match["nothing"]) or gates.outputs[0].rank != 2:
        raise MissError(gates, "it gives no weight for each token and expert, 0 for those that are not chosen")
    by_expert, results = match["by_expert"].shape or (), total.shape or ()
    is_apart = by_expert[:1] == results[:1] == (count,) and by_expert[-1:] == (1,) and len(by_expert) == len(results)
    if not is_apart or result.rank != 3 or fixed_size(result, 0) != count or fixed_size(result, 2) != width:
        raise MissError(match.nodes["weighted"], "it does not weigh the results of each expert")
    return result, count
