"""Find how far a mask depends on the order of past entries."""

from __future__ import annotations

from typing import Literal

from graphpass.analysis.masks.comparisons import bound_of_positions, compared_positions
from graphpass.analysis.masks.facts import alibi_operands, mask_facts
from graphpass.ir.constants import fold, fold_cuts, fold_scalar, starts_at_first
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import COMPARISONS, KEEPS_ORDER, LAYOUT, PICKS, SCATTERS, SHAPE_READERS, SLICES, SPLITS

PastOrder = Literal["any", "order", "index"]
"""``any``: entries may lie anywhere, others that the mask hides between them. ``order``: they must keep their order, as
a mask that counts what it does not hide needs. ``index``: entry i must be position i."""

#: Operators that give their first input another form, by further inputs.
FIRST_ONLY = LAYOUT | SPLITS | {"ConvertLike", "CumSum", "Pad", "Trilu"}


def order_of_mask(graph: Graph, mask: Value, lengths: set[int], stops: set[int]) -> PastOrder:
    """Return the order of past entries that a mask of known parts needs.

    ``lengths`` hold something for each past entry; ``stops``, results of attention, do not depend on their number.
    """
    orders: set[PastOrder] = {"any"}
    for node in graph.backward([mask], lambda node: () if node.op in SHAPE_READERS else node.inputs):
        if node.op in COMPARISONS:
            orders.add(_order_of_comparison(graph, node))
        if node.op in SCATTERS and not _writes_all(graph, node, lengths, stops):
            orders.add("index")
        alibi = alibi_operands(graph, node)
        if alibi is not None:
            orders.add("order" if _counts(graph, alibi[1]) <= {"counted", "given"} else "index")
    if "index" in orders or ("order" not in orders and mask_facts(graph, mask).windows):
        # A window that no comparison counts is cut out of a constant, entry by entry.
        return "index"
    return "order" if "order" in orders else "any"


def _writes_all(graph: Graph, node: Node, lengths: set[int], stops: set[int]) -> bool:
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
    # New entries follow all others in order: whether a key comes before its query does not change.
    causal = keys | queries == {"index"} and bound_of_positions(graph, compared) == 0
    return "any" if causal else "index"


def _counts(graph: Graph, value: Value) -> set[str]:
    """Return origins of numbers: ``index`` (range, length), ``counted`` (sum of the mask), ``given`` (input)."""
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
    if node.op in SCATTERS:
        return node.inputs[0], node.inputs[2]
    return node.inputs[:1] if node.op in FIRST_ONLY | SLICES else node.inputs


def uses_length(graph: Graph, value: Value, lengths: set[int], stops: set[int]) -> bool:
    """Return whether a size of ``lengths`` reaches ``value`` on ways without ``stops``."""
    upstream = graph.backward(
        [value], lambda node: () if node.op in SHAPE_READERS or node.index in stops else node.inputs
    )
    return any(node.op in SHAPE_READERS and node.source().node in lengths for node in upstream)


def reached(graph: Graph, sources: set[int], stops: set[int]) -> set[int]:
    """Return the nodes that ``sources`` reach, up to ``stops`` and nodes of new tokens alone."""
    found = set(sources)
    for node in graph.nodes:
        follows = any(value is not None and value.node in found and value.node not in stops for value in node.inputs)
        if follows and not (_is_fixed(graph, node) or _counts_on(graph, node, found) or _takes_new(graph, node, found)):
            found.add(node.index)
    return found - stops


def _is_fixed(graph: Graph, node: Node) -> bool:
    """Return whether ``node`` picks numbers that the model fixes."""
    return node.op in PICKS and all(fold(graph, value) is not None for value in node.outputs)


def _counts_on(graph: Graph, node: Node, reached: set[int]) -> bool:
    """Return whether ``node`` counts on from a length by steps independent of the past."""
    if node.op != "Range" or fold_scalar(graph, node.inputs[2]) != 1:
        return False
    start, stop = (graph.look_through(node.source(port), KEEPS_ORDER) for port in (0, 1))
    end = graph.producer(stop)
    if end.op != "Add":
        return False
    one, two = (graph.look_through(end.source(port), KEEPS_ORDER) for port in (0, 1))
    return (one == start and two.node not in reached) or (two == start and one.node not in reached)


def _takes_new(graph: Graph, node: Node, reached: set[int]) -> bool:
    """Return whether ``node`` keeps as many last entries as there are new tokens."""
    cuts = fold_cuts(graph, node)
    if len(cuts) != 1 or not cuts[0].reaches_end:
        return _drops_past(graph, node, reached)
    start = graph.producer(graph.look_through(node.source(1), KEEPS_ORDER))
    factors = [graph.look_through(value, KEEPS_ORDER) for value in start.inputs if value is not None]
    counts = [value for value in factors if fold_scalar(graph, value) != -1]
    if start.op not in {"Negative", "Multiply"} or len(factors) > 2 or len(counts) != 1:
        return False
    return counts[0].node not in reached and graph.producer(counts[0]).op in SLICES | SHAPE_READERS | {"Gather"}


def _drops_past(graph: Graph, node: Node, reached: set[int]) -> bool:
    """Return whether ``node`` slices from ``total - new`` to ``total``, its source's size, as extend-mask-to-past."""
    if node.op != "Slice":
        return False
    start, stop = (graph.look_through(node.source(port), KEEPS_ORDER) for port in (1, 2))
    total = graph.producer(stop)
    sizes = graph.producer(total.source()) if total.op == "Gather" else total
    begin = graph.producer(start)
    if begin.op != "Subtract" or sizes.op != "ShapeOf" or sizes.source() != node.source():
        return False
    first, new = (graph.look_through(value, KEEPS_ORDER) for value in begin.inputs[:2] if value is not None)
    return first == stop and new.node not in reached
