"""What a mask sees of the order in which past entries lie."""

from __future__ import annotations

from typing import Literal

from graphpass.analysis.lengths.past_reach import uses_length
from graphpass.analysis.masks.comparisons import bound_of_positions, compared_positions, is_comparison
from graphpass.analysis.masks.facts import WRITES, alibi_operands, mask_facts
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.slices import SLICES, starts_at_first
from graphpass.ir.values import one_number

__all__ = ["FIRST_ONLY", "PastOrder", "order_of_mask"]

PastOrder = Literal["any", "order", "index"]
"""``any``: entries may lie anywhere, others that the mask hides between them. ``order``: they must keep their order, as
a mask that counts what it does not hide needs. ``index``: entry i must be position i."""

#: Operators that give their first input another form, told by others.
FIRST_ONLY = frozenset(
    {"Broadcast", "ConvertLike", "CumSum", "Pad", "Reshape", "Split", "Squeeze", "Tile", "Transpose", "Trilu"}
    | {"Unsqueeze", "VariadicSplit"}
)


def order_of_mask(graph: Graph, mask: Value, lengths: set[int], stops: set[int]) -> PastOrder:
    """What a mask of known parts sees of the order of past entries.

    Args:
        graph: Where it is.
        mask: What one attention adds to its scores, or chooses them by.
        lengths: Nodes that hold something for each past entry.
        stops: Results of attention, which do not tell how many entries it read.
    """
    orders: set[PastOrder] = {"any"}
    for node in graph.backward([mask], lambda node: () if node.op == "ShapeOf" else node.inputs):
        if is_comparison(node):
            orders.add(_order_of_comparison(graph, node))
        if node.op in WRITES and not _writes_all(graph, node, lengths, stops):
            orders.add("index")
        alibi = alibi_operands(graph, node)
        if alibi is not None:
            orders.add("order" if _counts(graph, alibi[1]) <= {"counted", "given"} else "index")
    if "index" in orders or ("order" not in orders and mask_facts(graph, mask).windows):
        # A window that no comparison counts is cut out of a constant, entry by entry.
        return "index"
    return "order" if "order" in orders else "any"


def _writes_all(graph: Graph, node: Node, lengths: set[int], stops: set[int]) -> bool:
    """Whether ``node`` writes to all places, which it counts from the first one."""

    def places(node: Node) -> tuple[Value | None, ...]:
        return () if node.op == "Range" else node.inputs if node.op == "Concat" else node.inputs[:1]

    for source in graph.backward([node.inputs[1]], places):
        if source.op == "Range":
            known = [one_number(graph, value) for value in source.inputs] == [0, None, 1]
        elif source.op in SLICES:
            stop = source.inputs[2]
            known = starts_at_first(graph, source) and stop is not None and uses_length(graph, stop, lengths, stops)
        else:
            known = source.op in FIRST_ONLY | {"Concat", "Convert"}
        if not known:
            return False
    return True


def _order_of_comparison(graph: Graph, node: Node) -> PastOrder:
    compared = compared_positions(graph, node.outputs[0])
    if compared is None:
        sides = set().union(*(_counts(graph, value) for value in node.inputs if value is not None))
        return "index" if sides else "any"
    keys, queries = _counts(graph, compared.keys), _counts(graph, compared.queries)
    if keys | queries <= {"counted", "given"}:
        return "order"
    # New entries lie behind all others, and in their order: whether a key comes before its query does not change.
    causal = keys | queries == {"index"} and bound_of_positions(graph, compared) == 0
    return "any" if causal else "index"


def _counts(graph: Graph, value: Value) -> set[str]:
    """What numbers come from: ``index`` a range or a length, ``counted`` what is not hidden, ``given`` an input."""
    found = set()
    for node in graph.backward([value], _numbers):
        if node.op in {"Range", "ShapeOf"} or (node.op == "Parameter" and node.name == "cache_position"):
            found.add("index")
        elif node.op == "CumSum":
            found.add("counted")
        elif node.op == "Parameter" and node.name == "position_ids":
            found.add("given")
    return found


def _numbers(node: Node) -> tuple[Value | None, ...]:
    # What comparisons say is told of each one alone.
    if node.op in {"ConstantOfShape", "CumSum", "Range", "ShapeOf"} or is_comparison(node):
        return ()
    if node.op in WRITES:
        return tuple(node.inputs[port] for port in WRITES[node.op])
    return node.inputs[:1] if node.op in FIRST_ONLY | SLICES else node.inputs
