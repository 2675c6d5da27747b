"""Find experts that each compute a piece of the sorted tokens."""

from __future__ import annotations

from functools import partial

from graphpass.analysis.experts.layers import SPREAD, Layer, gathered_tokens, is_column, read_alike, require_weights
from graphpass.analysis.experts.products import Expert, read_expert
from graphpass.analysis.experts.separate import separate_experts, separate_layer
from graphpass.analysis.pattern import Match, look_through, op, var
from graphpass.analysis.symbolic.folding import fold_scalar, is_zero
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss, MissError, or_miss
from graphpass.ir.operators import CASTS, KEEPS_ORDER, PRODUCTS, RESHAPES
from graphpass.ir.values import fixed_size

_CHOSEN = var("chosen") & op.TopK(..., port=1)

#: The choices of all tokens in ascending order, all of them.
_SORT = op.TopK(
    var("flat") & look_through(_CHOSEN, KEEPS_ORDER),
    look_through(op.ShapeOf(var("flat"), ...), KEEPS_ORDER | {"Gather"}),
    ...,
    port=1,
    name="sort",
    mode="min",
    sort=None,
)

#: The token of each sorted row.
_ROW = var("row") & op.Divide(look_through(var("order") & _SORT, SPREAD), var("slots"))

_WEIGHT = look_through(
    op.Gather(var("weights"), look_through(var("order"), KEEPS_ORDER), ..., axis=0), KEEPS_ORDER
).where(is_column)

#: The sum of all rows, each weighted and added to its token.
SORTED = op.ScatterElementsUpdate(
    var("base"),
    look_through(_ROW, SPREAD),
    look_through(op.Multiply(var("result"), _WEIGHT), frozenset({"Broadcast"})),
    ...,
    axis=0,
    reduction="sum",
)

#: Number of choices of each expert, ``[experts]``: the sum of 1 for each choice.
_COUNTS = look_through(
    op.ReduceSum(
        look_through(
            op.ScatterElementsUpdate(
                var("unmarked").where(lambda graph, value: None if is_zero(graph, value) else f"{value.name} is not 0"),
                look_through(var("chosen"), CASTS),
                look_through(1, frozenset({"Broadcast", "Convert", "Slice"})),
                ...,
                axis=1,
                reduction=None,
            ),
            CASTS,
        ),
        0,
    ),
    CASTS,
)


def routed_layers(graph: Graph) -> dict[str, Layer | Miss]:
    """Return the layers whose experts compute the tokens that are routed to them, by name."""
    layers = {match.nodes["sort"].name: sorted_layer(graph, match) for match in SORTED.find(graph)}
    separate = separate_experts(graph).values()
    return layers | {matches[0].nodes["one_hot"].name: separate_layer(graph, matches) for matches in separate}


@or_miss
def sorted_layer(graph: Graph, match: Match) -> Layer:
    """Return the layer of a match of `SORTED`.

    Raises:
        MissError: The rows are not split by expert, or the experts differ in structure.
    """
    anchor, chosen = match.nodes["sort"], match["chosen"]
    weights, slots = graph.look_through(match["weights"], RESHAPES), fixed_size(chosen, 1)
    if slots is None or fold_scalar(graph, match["slots"]) != slots:
        raise MissError(graph.producer(match["row"]), "it does not give the tokens of sorted choices")
    require_weights(graph, weights, chosen, match["result"])
    if match["flat"].rank != 1 or not is_zero(graph, match["base"]):
        raise MissError(match.node, "it does not add up all rows, from 0")
    pieces = _Pieces(graph, match)
    read: list[Expert] = []
    while len(read) < (pieces.count or 1):
        read.append(read_expert(graph, match["result"], piece=partial(pieces.product, len(read))))
    total = match.node.outputs[0]
    rows = read_alike(anchor, [gathered_tokens(graph, expert.rows, match["row"]) for expert in read], read)
    if fixed_size(total, 1) != fixed_size(rows, 1):
        raise MissError(match.node, "it gives tokens of another size")
    return Layer(anchor.name, rows, chosen, weights, tuple(read), len(read), total)


class _Pieces:
    """Take apart expert-wise products of the sorted rows.

    Attributes:
        count: Number of experts; 0 if no product was seen yet.
    """

    def __init__(self, graph: Graph, match: Match) -> None:
        self.count = 0
        self._graph, self._match = graph, match

    def product(self, expert: int, joined: Node) -> tuple[Node, Value]:
        """Return one expert's product of those in a Concat, and the rows of all.

        Raises:
            MissError: Experts have no products of their own.
        """
        if joined.op != "Concat":
            if joined.op in PRODUCTS:
                raise MissError(joined, "it computes all experts with one weight")
            return joined, joined.outputs[0]
        self.count = self.count or len(joined.inputs)
        if len(joined.inputs) != self.count or joined.attributes["axis"] != 0:
            raise MissError(joined, f"it does not join the rows of {self.count} experts")
        product = self._graph.producer(joined.source(expert))
        if product.op not in PRODUCTS:
            raise MissError(product, "it is not a product of an expert's rows with a weight")
        return product, self._uncut(self._graph.producer(product.source()), expert)

    def _uncut(self, cut: Node, expert: int) -> Value:
        """Return the source of an expert's slice; rows are in the order of experts."""
        graph = self._graph
        step = cut.input(cut.attributes["steps_port"]) if cut.op == "Slice" else None
        if cut.attributes.get("axes") != (0,) or (step is not None and fold_scalar(graph, step) != 1):
            raise MissError(cut, "it takes no piece of all rows")
        ends = [self._counted(cut.source(port)) for port in (1, 2)]
        if ends != [list(range(expert)), list(range(expert + 1))]:
            raise MissError(cut, f"it takes the rows of other experts than {expert}")
        return cut.source()

    def _counted(self, end: Value) -> list[int]:
        """Return the experts whose rows ``end`` counts."""
        graph = self._graph
        experts: list[int] = []
        pending = [end]
        while pending:
            value = graph.look_through(pending.pop(), KEEPS_ORDER)
            node, number = graph.producer(value), fold_scalar(graph, value)
            if node.op == "Add":
                pending += [node.source(0), node.source(1)]
            elif node.op == "Gather" and (expert := fold_scalar(graph, node.inputs[1])) is not None:
                _COUNTS.require(graph, node.source(), self._match)
                experts.append(int(expert))
            elif number != 0:
                raise MissError(node, "it counts no rows of experts")
        return sorted(experts)
