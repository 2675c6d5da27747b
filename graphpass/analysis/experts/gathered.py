"""Find experts whose weights each pair of token and expert gathers for itself."""

from __future__ import annotations

from graphpass.analysis.pattern import Match, op, var
from graphpass.analysis.symbolic.folding import fold
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import MissError
from graphpass.ir.operators import KEEPS_ORDER
from graphpass.ir.values import fixed_size

#: The sum over experts of results ``[tokens, k, hidden]``, each times its weight.
GATHERED = op.ReduceSum(op.Reshape(op.Multiply(var("first"), var("second"), name="weighted"), ...), ...)


def gathered_result(graph: Graph, match: Match) -> tuple[Value, Value] | None:
    """Return results ``[pairs, hidden]`` and weights ``[tokens, k]`` of a match of `GATHERED`; ``None`` for others."""
    node, pairs = match.node, match.node.source()
    axes = fold(graph, node.input(1))
    if axes is None or axes.tolist() not in ([1], [-2]) or node.attributes.get("keeps_axes") is not False:
        return None
    for result, column in ((match["first"], match["second"]), (match["second"], match["first"])):
        weights = graph.look_through(column, KEEPS_ORDER)
        if fixed_size(column, 1) != 1 or weights.rank != 2 or result.rank != 2 or pairs.rank != 3:
            continue
        slots, width = fixed_size(weights, 1), fixed_size(result, 1)
        if None not in (slots, width) and (fixed_size(pairs, 1), fixed_size(pairs, 2)) == (slots, width):
            return result, weights
    return None


def gathered_rows(graph: Graph, rows: Value, slots: int) -> Value:
    """Return the tokens that ``rows`` holds once for each of their experts.

    Rows are those of the first token, of the second, and so on.

    Raises:
        MissError: Rows are others.
    """
    node = graph.producer(rows)
    tokens: Value | None = None
    if node.op == "Reshape" and rows.rank == 2:
        tokens = _repeated(graph, graph.producer(node.source()), slots)
    elif node.op == "Gather" and node.attributes.get("axis") == 0 and _counts_tokens(graph, node.source(1), slots):
        tokens = node.source()
    width = fixed_size(rows, 1)
    if tokens is None or width is None or tokens.rank != 2 or fixed_size(tokens, 1) != width:
        raise MissError(node, "it does not hold each token once for each of its experts")
    return tokens


def _repeated(graph: Graph, node: Node, slots: int) -> Value | None:
    """Return the source of ``node`` that has each of its rows ``slots`` times."""
    before = graph.producer(node.source())
    is_copied = node.op == "Broadcast" and fixed_size(node.outputs[0], 1) == slots
    return before.source() if is_copied and before.op == "Unsqueeze" and before.attributes.get("axes") == (1,) else None


def _counts_tokens(graph: Graph, index: Value, slots: int) -> bool:
    """Return whether ``index`` is 0, 1, 2 .., each ``slots`` times."""
    node = graph.producer(index)
    source = _repeated(graph, graph.producer(node.source()), slots) if node.op == "Reshape" else None
    counting = None if source is None else graph.producer(source)
    if counting is None or counting.op != "Range" or index.rank != 1:
        return False
    start, step = (fold(graph, counting.input(port)) for port in (0, 2))
    return start is not None and step is not None and (start.item(), step.item()) == (0, 1)
