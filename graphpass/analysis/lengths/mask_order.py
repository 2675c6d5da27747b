"""Tell what a mask sees of the order in which past entries lie."""

from __future__ import annotations

from typing import Literal

from graphpass.analysis.lengths.past_reach import uses_length
from graphpass.analysis.masks.comparisons import bound_of_positions, compared_positions
from graphpass.analysis.masks.facts import WRITES, alibi_operands, mask_facts
from graphpass.ir.constants import fold_scalar, starts_at_first
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import COMPARISONS, KEEPS_ORDER, LAYOUT, SHAPE_READERS, SLICES, SPLITS

__all__ = ["FIRST_ONLY", "PastOrder", "order_of_mask"]

PastOrder = Literal["any", "order", "index"]
"""``any``: entries may lie anywhere, others that the mask hides between them. ``order``: they must keep their order, as
a mask that counts what it does not hide needs. ``index``: entry i must be position i."""

#: Give their first input another form, by further inputs.
FIRST_ONLY = LAYOUT | SPLITS | {"ConvertLike", "CumSum", "Pad", "Trilu"}


def order_of_mask(graph: Graph, mask: Value, lengths: set[int], stops: set[int]) -> PastOrder:
    """Return what a mask of known parts sees of the order of past entries.

    Args:
        graph: The graph.
        mask: Tensor that one attention adds to its scores, or condition that selects them.
        lengths: Nodes that hold something for each past entry.
        stops: Results of attention, which do not depend on how many entries it read.
    """
    orders: set[PastOrder] = {"any"}
    for node in graph.backward([mask], lambda node: () if node.op in SHAPE_READERS else node.inputs):
        if node.op in COMPARISONS:
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
    """Return whether ``node`` writes to all places, which it counts from the first one."""

    def places(node: Node) -> tuple[Value | None, ...]:
        return () if node.op == "Range" else node.inputs if node.op == "Concat" else node.inputs[:1]

    for source in graph.backward([node.inputs[1]], places):
        if source.op == "Range":
            stop = graph.look_through(source.source(1), KEEPS_ORDER)
            counts = [fold_scalar(graph, source.inputs[port]) for port in (0, 2)] == [0, 1]
            known = counts and graph.producer(stop).op != "Constant"
        elif source.op in SLICES:
            known = starts_at_first(graph, source) and uses_length(graph, source.source(2), lengths, stops)
        else:
            known = source.op in FIRST_ONLY | {"Concat"}
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
    # New entries follow all others, and in their order: whether a key comes before its query does not change.
    causal = keys | queries == {"index"} and bound_of_positions(graph, compared) == 0
    return "any" if causal else "index"


def _counts(graph: Graph, value: Value) -> set[str]:
    """Return origins of numbers: ``index`` a range or length, ``counted`` what is not hidden, ``given`` an input."""
    found = set()
    for node in graph.backward([value], _numbers):
        if node.op in {"Range"} | SHAPE_READERS or (node.op == "Parameter" and node.name == "cache_position"):
            found.add("index")
        elif node.op == "CumSum":
            found.add("counted")
        elif node.op == "Parameter" and node.name == "position_ids":
            found.add("given")
    return found


def _numbers(node: Node) -> tuple[Value | None, ...]:
    # Each comparison is judged by itself.
    if node.op in {"ConstantOfShape", "CumSum", "Range"} | SHAPE_READERS | COMPARISONS.keys():
        return ()
    if node.op in WRITES:
        return tuple(node.inputs[port] for port in WRITES[node.op])
    return node.inputs[:1] if node.op in FIRST_ONLY | SLICES else node.inputs
