"""Find experts that each compute the tokens that are routed to them.

They are computed one by one, each on the tokens that are found for it, or on pieces of the tokens sorted by expert.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from graphpass.analysis.experts.products import Expert, read_expert
from graphpass.analysis.pattern import Match, Pattern, look_through, op, var
from graphpass.analysis.symbolic.folding import fold, fold_scalar, is_zero
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss, MissError, or_miss
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, COPIES, KEEPS_ORDER, PRODUCTS, RESHAPES
from graphpass.ir.values import fixed_size

#: Operators that lay numbers out in their order, and repeat them along further axes.
_SPREAD = KEEPS_ORDER | COPIES

#: Lay the weights of all choices in a row.
_FLATTENS = RESHAPES | {"Flatten"}


@dataclass(frozen=True, slots=True)
class Layer:
    """The experts of one layer.

    Attributes:
        name: Name of the operator that sorts out which tokens belong to which expert, or weighs their results.
        rows: ``[tokens, hidden]``.
        chosen: The experts of each token, ``[tokens, k]``.
        weights: Their weights, ``[tokens, k]``.
        experts: Each of them, or one that computes all in batched products.
        count: Number of experts.
        total: The sum of all weighted experts.
    """

    name: str
    rows: Value
    chosen: Value
    weights: Value
    experts: tuple[Expert, ...]
    count: int
    total: Value


_CHOSEN = var("chosen") & op.TopK(..., port=1)


def _is_column(_graph: Graph, value: Value) -> str | None:
    """Check that ``value`` has one number for each row."""
    return None if value.rank == 2 and fixed_size(value, 1) == 1 else f"{value.name} is not a column"


def _added(token: Pattern, place: Pattern, **attributes: str) -> Pattern:
    """Match rows that are added to their tokens, each times the weight at its place."""
    weight = look_through(op.Gather(var("weights"), look_through(place, KEEPS_ORDER), ..., axis=0), KEEPS_ORDER)
    weighted = look_through(op.Multiply(var("result"), weight.where(_is_column)), frozenset({"Broadcast", "Convert"}))
    return op.ScatterElementsUpdate(var("base"), look_through(token, _SPREAD), weighted, ..., axis=0, **attributes)


def _layer(graph: Graph, anchor: Node, match: Match, experts: Sequence[tuple[Expert, Value]], total: Value) -> Layer:
    """Return the layer of experts, each with the token of each of its rows.

    Raises:
        MissError: There are other weights than one for each choice, or experts read different tokens, or compute
            different things.
    """
    chosen, weights = match["chosen"], graph.look_through(match["weights"], _FLATTENS)
    if (weights.shape, weights.element_type) != (chosen.shape, match["result"].element_type):
        raise MissError(graph.producer(weights), "it gives no weight for each choice, of the type of the tokens")
    rows = {_gathered(graph, expert.rows, token) for expert, token in experts}
    if len(rows) > 1 or len({expert.form for expert, _ in experts}) > 1:
        raise MissError(anchor, "its experts read different tokens, or compute different things")
    read = tuple(expert for expert, _ in experts)
    return Layer(anchor.name, rows.pop(), chosen, weights, read, len(read), total)


def _gathered(graph: Graph, rows: Value, index: Value) -> Value:
    """Return the tokens ``[tokens, hidden]`` that ``rows`` gathers at ``index``; raise `MissError` on others."""
    gather = graph.producer(graph.look_through(rows, {"Reshape"}))
    if gather.op != "Gather":
        raise MissError(gather, "it does not gather the rows of the experts' tokens")
    tokens, axis = gather.source(), gather.attributes.get("axis")
    if axis == 1 and graph.producer(tokens).op == "Unsqueeze":
        tokens, axis = graph.producer(tokens).source(), 0
    width = fixed_size(tokens, 1) if tokens.rank == 2 else None
    is_same = axis == 0 and graph.look_through(gather.source(1), KEEPS_ORDER) == index
    if not is_same or width is None or rows.rank != 2 or fixed_size(rows, 1) != width:
        raise MissError(gather, "it does not gather the rows of the experts' tokens")
    return tokens


#: OpenVINO has the numbers 1 and 0 apart, ONNX in one input.
ONE_HOT = op.OneHot(look_through(_CHOSEN, CASTS), var("count"), 1, 0, name="one_hot", axis=2) | op.OneHot(
    look_through(_CHOSEN, CASTS),
    var("count"),
    var("levels").where(lambda graph, value: None if _is_off_on(graph, value) else f"{value.name} is not 0 and 1"),
    name="one_hot",
    axis=2,
)


def _is_off_on(graph: Graph, value: Value) -> bool:
    constant = fold(graph, value)
    return constant is not None and constant.tolist() == [0, 1]


def _places(order: tuple[int, ...], port: int) -> Pattern:
    """Match one expert's places along one axis of the permuted choices."""
    part = op.Gather(op.Transpose(ONE_HOT, ..., order=order), var("number"), ..., axis=0)
    pattern = op.NonZero(part | op.Convert(part))
    turned = op.Transpose(pattern, ..., order=(1, 0))
    split = "Split|VariadicSplit"
    return op(split, pattern, ..., axis=0, port=port) | op(split, turned, ..., axis=1, port=port)


def _expert(order: tuple[int, ...]) -> Pattern:
    """Match the rows of one expert, weighted and added to their tokens.

    A token's weight for the expert is element ``slot + k * token`` of all weights.
    """
    axis = order[1:].index(0)
    token, slot = var("token") & _places(order, axis), _places(order, 1 - axis)
    place = op.Add(look_through(slot, KEEPS_ORDER), op.Multiply(look_through(token, KEEPS_ORDER), var("k")))
    return _added(token, place)


#: The addition of one expert to the sum.
_EXPERT = _expert((2, 1, 0)) | _expert((2, 0, 1))


@or_miss
def _separate(graph: Graph, experts: Sequence[Match]) -> Layer:
    """Return the layer of `_EXPERT` matches of one OneHot.

    Raises:
        MissError: Some are missing, weighted by other numbers, or of other forms.
    """
    first = experts[0]
    anchor = first.nodes["one_hot"]
    tables = {graph.look_through(expert["weights"], _FLATTENS) for expert in experts}
    places = (fold_scalar(graph, expert["number"]) for expert in experts)
    numbers = [-1 if number is None else int(number) for number in places]
    count = int(fold_scalar(graph, first["count"]) or 0)
    if sorted(numbers) != list(range(count)):
        raise MissError(anchor, f"experts {sorted(numbers)} of {count} are found")
    slots = fixed_size(first["chosen"], 1)
    if len(tables) > 1 or any(fold_scalar(graph, expert["k"]) != slots for expert in experts):
        raise MissError(anchor, "its experts are weighted by other numbers than one for each choice")
    ordered = [experts[numbers.index(number)] for number in range(count)]
    read = [(read_expert(graph, expert["result"]), expert["token"]) for expert in ordered]
    return _layer(graph, anchor, first, read, _summed(graph, experts))


def _summed(graph: Graph, experts: Sequence[Match]) -> Value:
    """Return the sum of all experts; raise `MissError` unless each is added once."""
    sums: dict[Value | None, Value] = {}
    for expert in experts:
        base, after = expert["base"], expert.node
        if after.attributes.get("reduction") != "sum":
            added = [use.node for use in graph.uses(after.outputs[0])]
            if not is_zero(graph, base) or len(added) != 1 or added[0].op != "Add":
                raise MissError(after, "it neither adds to a sum nor is added to one")
            after = added[0]
            base = next((value for value in after.inputs if value and value != expert.node.outputs[0]), base)
        sums[None if is_zero(graph, base) else base] = after.outputs[0]
    last: Value | None = None
    for _ in experts:
        if last not in sums:
            raise MissError(experts[0].node, "the results of experts are not added up one by one, from 0")
        last = sums[last]
    assert last is not None
    return last


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

#: The sum of all rows, each added to the token of its choice.
_SORTED = _added(
    var("token") & op.Divide(look_through(var("order") & _SORT, _SPREAD), var("slots")), var("order"), reduction="sum"
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


@or_miss
def _sorted(graph: Graph, match: Match, pieces: _Pieces) -> Layer:
    """Return the layer of a match of `_SORTED`, whose products ``pieces`` collects.

    Raises:
        MissError: The rows are not split by expert, or the experts differ in structure.
    """
    slots, total = fixed_size(match["chosen"], 1), match.node.outputs[0]
    if slots is None or fold_scalar(graph, match["slots"]) != slots:
        raise MissError(graph.producer(match["token"]), "it does not give the tokens of sorted choices")
    if match["flat"].rank != 1 or not is_zero(graph, match["base"]):
        raise MissError(match.node, "it does not add up all rows, from 0")
    read: list[tuple[Expert, Value]] = []
    while len(read) < (pieces.count or 1):
        read.append((read_expert(graph, match["result"], piece=partial(pieces.product, len(read))), match["token"]))
    layer = _layer(graph, match.nodes["sort"], match, read, total)
    if fixed_size(total, 1) != fixed_size(layer.rows, 1):
        raise MissError(match.node, "it gives tokens of another size")
    return layer


class _Pieces:
    """Take apart expert-wise products of the sorted rows.

    Attributes:
        count: Number of experts; 0 if no product was seen yet.
        joins: Indices of the Concats that join the products of all experts.
        cuts: The expert, by the index of the Slice of its rows.
    """

    def __init__(self, graph: Graph, match: Match) -> None:
        self.count = 0
        self.joins = set[int]()
        self.cuts = dict[int, int]()
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
        self.joins.add(joined.index)
        return product, self._uncut(self._graph.producer(product.source()), expert)

    def are_read_once(self) -> bool:
        """Return whether slices and their products have one reader each."""
        uses = self._graph.uses
        slices = [uses(self._graph.nodes[cut].outputs[0]) for cut in self.cuts]
        return all(len(read) == 1 and len(uses(read[0].node.outputs[0])) == 1 for read in slices)

    def _uncut(self, cut: Node, expert: int) -> Value:
        """Return the source of an expert's slice; rows are in the order of experts."""
        graph = self._graph
        step = cut.input(cut.attributes["steps_port"]) if cut.op == "Slice" else None
        if cut.attributes.get("axes") != (0,) or (step is not None and fold_scalar(graph, step) != 1):
            raise MissError(cut, "it takes no piece of all rows")
        ends = [self._counted(cut.source(port)) for port in (1, 2)]
        if ends != [list(range(expert)), list(range(expert + 1))]:
            raise MissError(cut, f"it takes the rows of other experts than {expert}")
        self.cuts[cut.index] = expert
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


@dataclass(frozen=True, slots=True)
class SortedPieces:
    """Slices of the rows that are sorted by expert, and the products of these slices.

    Attributes:
        joins: The experts of all rows, ``[rows]``, by the index of the Concat that joins the products.
        cuts: These and one expert, by the index of the Slice of its rows, which only a product with its weight reads.
    """

    joins: Mapping[int, Value]
    cuts: Mapping[int, tuple[Value, int]]


def find_sorted_pieces(model: Model) -> SortedPieces:
    """Return the slices of all layers that sort their rows by expert."""
    graph, joins, cuts = model.graph, dict[int, Value](), dict[int, tuple[Value, int]]()
    for match in _SORTED.find(graph):
        pieces = _Pieces(graph, match)
        if isinstance(_sorted(graph, match, pieces), Layer) and pieces.are_read_once():
            experts = match.nodes["sort"].outputs[0]
            joins |= dict.fromkeys(pieces.joins, experts)
            cuts |= {cut: (experts, expert) for cut, expert in pieces.cuts.items()}
    return SortedPieces(joins, cuts)


def routed_layers(graph: Graph) -> dict[str, Layer | Miss]:
    """Return the layers whose experts compute the tokens that are routed to them, by name."""
    separate: dict[str, list[Match]] = {}
    for match in _EXPERT.find(graph):
        separate.setdefault(match.nodes["one_hot"].name, []).append(match)
    layers = {match.nodes["sort"].name: _sorted(graph, match, _Pieces(graph, match)) for match in _SORTED.find(graph)}
    return layers | {name: _separate(graph, matches) for name, matches in separate.items()}
