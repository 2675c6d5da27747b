"""Sparse layers of experts: each expert computes only the tokens that are routed to it.

Experts are computed one at a time, on tokens that NonZero finds, or on slices of tokens sorted by expert.
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

#: Operators that keep the order of elements, or repeat them along additional axes.
_SPREAD = KEEPS_ORDER | COPIES


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """The experts of one layer.

    Attributes:
        name: Name of the operator that assigns tokens to experts, or weights their results.
        rows: The tokens, ``[tokens, hidden]``.
        chosen: Indices of the experts of each token, ``[tokens, k]``.
        weights: Weights of these experts, ``[tokens, k]``.
        experts: One entry for each expert, or one entry for all in batched products.
        count: Number of experts.
        total: The weighted sum of all experts.
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
    """Return a reason unless ``value`` has the shape ``[rows, 1]``."""
    return None if value.rank == 2 and fixed_size(value, 1) == 1 else f"{value.name} does not have the shape [rows, 1]"


def _added(token: Pattern, place: Pattern, **attributes: str) -> Pattern:
    """Return a pattern of weighted rows that are added to their tokens.

    Args:
        token: Pattern of the token of each row.
        place: Pattern of the index of each row's weight, among the weights of all choices.
        attributes: Required attributes of the ScatterElementsUpdate.
    """
    weight = look_through(op.Gather(var("weights"), look_through(place, KEEPS_ORDER), ..., axis=0), KEEPS_ORDER)
    weighted = look_through(op.Multiply(var("result"), weight.where(_is_column)), frozenset({"Broadcast", "Convert"}))
    return op.ScatterElementsUpdate(var("base"), look_through(token, _SPREAD), weighted, ..., axis=0, **attributes)


def _layer(
    graph: Graph, anchor: Node, match: Match, experts: Sequence[tuple[Expert, Value]], total: Value
) -> ExpertLayer:
    """Return the layer of experts.

    Args:
        graph: The graph.
        anchor: The node that names the layer.
        match: A match with the variables ``chosen``, ``weights`` and ``result``.
        experts: Each expert with the tokens of its rows.
        total: The weighted sum.

    Raises:
        MissError: Weights do not match the choices, or experts read different tokens or differ in structure.
    """
    chosen, weights = match["chosen"], graph.look_through(match["weights"], RESHAPES)
    if (weights.shape, weights.element_type) != (chosen.shape, match["result"].element_type):
        raise MissError(graph.producer(weights), "expected a weight for each selected expert, in the tokens' type")
    rows = {_gathered(graph, expert.rows, token) for expert, token in experts}
    if len(rows) > 1 or len({expert.form for expert, _ in experts}) > 1:
        raise MissError(anchor, "experts read different tokens, or differ in structure")
    read = tuple(expert for expert, _ in experts)
    return ExpertLayer(anchor.name, rows.pop(), chosen, weights, read, len(read), total)


def _gathered(graph: Graph, rows: Value, index: Value) -> Value:
    """Return the tokens ``[tokens, hidden]`` that ``rows`` gathers at ``index``.

    Raises:
        MissError: Rows are not gathered by ``index``.
    """
    gather = graph.producer(graph.look_through(rows, {"Reshape"}))
    if gather.op != "Gather":
        raise MissError(gather, "expected a Gather of the rows of an expert's tokens")
    tokens, axis = gather.source(), gather.attributes.get("axis")
    if axis == 1 and graph.producer(tokens).op == "Unsqueeze":
        tokens, axis = graph.producer(tokens).source(), 0
    width = fixed_size(tokens, 1) if tokens.rank == 2 else None
    is_same = axis == 0 and graph.look_through(gather.source(1), KEEPS_ORDER) == index
    if not is_same or width is None or rows.rank != 2 or fixed_size(rows, 1) != width:
        raise MissError(gather, "expected a Gather of the rows of an expert's tokens")
    return tokens


#: The values 1 and 0 are separate inputs in OpenVINO, and one input ``[0, 1]`` in ONNX.
ONE_HOT = op.OneHot(look_through(_CHOSEN, CASTS), var("count"), 1, 0, name="one_hot", axis=2) | op.OneHot(
    look_through(_CHOSEN, CASTS),
    var("count"),
    var("levels").where(lambda graph, value: None if _is_off_on(graph, value) else f"{value.name} is not [0, 1]"),
    name="one_hot",
    axis=2,
)


def _is_off_on(graph: Graph, value: Value) -> bool:
    constant = fold(graph, value)
    return constant is not None and constant.tolist() == [0, 1]


def _places(order: tuple[int, ...], port: int) -> Pattern:
    """Return a pattern of one expert's indices along one axis of the transposed OneHot.

    Args:
        order: Permutation of the OneHot's axes (token, choice, expert); the expert is first.
        port: The output of the Split: the axis of the index.
    """
    part = op.Gather(op.Transpose(ONE_HOT, ..., order=order), var("number"), ..., axis=0)
    pattern = op.NonZero(part | op.Convert(part))
    turned = op.Transpose(pattern, ..., order=(1, 0))
    split = "Split|VariadicSplit"
    return op(split, pattern, ..., axis=0, port=port) | op(split, turned, ..., axis=1, port=port)


def _expert(order: tuple[int, ...]) -> Pattern:
    """Return a pattern of one expert's rows, weighted and added to their tokens.

    The weight of a token for the expert is element ``choice + k * token`` of all weights.

    Args:
        order: Permutation of the OneHot's axes, as for `_places`.
    """
    axis = order[1:].index(0)
    token, slot = var("token") & _places(order, axis), _places(order, 1 - axis)
    place = op.Add(look_through(slot, KEEPS_ORDER), op.Multiply(look_through(token, KEEPS_ORDER), var("k")))
    return _added(token, place)


#: The addition of one expert's result to the sum.
_EXPERT = _expert((2, 1, 0)) | _expert((2, 0, 1))


@or_miss
def _separate(graph: Graph, experts: Sequence[Match]) -> ExpertLayer:
    """Return the layer of the `_EXPERT` matches of one OneHot.

    Raises:
        MissError: Experts are missing, have other weights, or differ in structure.
    """
    first = experts[0]
    anchor = first.nodes["one_hot"]
    tables = {graph.look_through(expert["weights"], RESHAPES) for expert in experts}
    places = (fold_scalar(graph, expert["number"]) for expert in experts)
    numbers = [-1 if number is None else int(number) for number in places]
    count = int(fold_scalar(graph, first["count"]) or 0)
    if sorted(numbers) != list(range(count)):
        raise MissError(anchor, f"experts {sorted(numbers)} of {count} are found")
    slots = fixed_size(first["chosen"], 1)
    if len(tables) > 1 or any(fold_scalar(graph, expert["k"]) != slots for expert in experts):
        raise MissError(anchor, "expected one weight for each selected expert of a token")
    ordered = [experts[numbers.index(number)] for number in range(count)]
    read = [(read_expert(graph, expert["result"]), expert["token"]) for expert in ordered]
    return _layer(graph, anchor, first, read, _summed(graph, experts))


def _summed(graph: Graph, experts: Sequence[Match]) -> Value:
    """Return the sum of all experts.

    Raises:
        MissError: Experts are not added one at a time, each once, starting from 0.
    """
    sums: dict[Value | None, Value] = {}
    for expert in experts:
        base, after = expert["base"], expert.node
        if after.attributes.get("reduction") != "sum":
            added = [use.node for use in graph.uses(after.outputs[0])]
            if not is_zero(graph, base) or len(added) != 1 or added[0].op != "Add":
                raise MissError(after, "the result of an expert is not added to a sum")
            after = added[0]
            base = next((value for value in after.inputs if value and value != expert.node.outputs[0]), base)
        sums[None if is_zero(graph, base) else base] = after.outputs[0]
    last: Value | None = None
    for _ in experts:
        if last not in sums:
            raise MissError(experts[0].node, "results of experts are not added one at a time, starting from 0")
        last = sums[last]
    assert last is not None
    return last


#: The choices of all tokens, sorted by expert.
_SORT = op.TopK(
    var("flat") & look_through(_CHOSEN, KEEPS_ORDER),
    look_through(op.ShapeOf(var("flat"), ...), KEEPS_ORDER | {"Gather"}),
    ...,
    port=1,
    name="sort",
    mode="min",
    sort=None,
)

#: The sum of all rows, each added to its token.
_SORTED = _added(
    var("token") & op.Divide(look_through(var("order") & _SORT, _SPREAD), var("slots")), var("order"), reduction="sum"
)

#: Number of rows of each expert, ``[experts]``: the sum of a one-hot encoding of all choices.
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
def _sorted(graph: Graph, match: Match, pieces: _Pieces) -> ExpertLayer:
    """Return the layer of a match of `_SORTED`; ``pieces`` collects its products.

    Raises:
        MissError: The rows are not split by expert, or the experts differ in structure.
    """
    slots, total = fixed_size(match["chosen"], 1), match.node.outputs[0]
    if slots is None or fold_scalar(graph, match["slots"]) != slots:
        raise MissError(graph.producer(match["token"]), "expected the tokens of sorted choices: indices divided by k")
    if match["flat"].rank != 1 or not is_zero(graph, match["base"]):
        raise MissError(match.node, "expected a sum of all rows, starting from 0")
    read: list[tuple[Expert, Value]] = []
    while len(read) < (pieces.count or 1):
        read.append((read_expert(graph, match["result"], piece=partial(pieces.product, len(read))), match["token"]))
    layer = _layer(graph, match.nodes["sort"], match, read, total)
    if fixed_size(total, 1) != fixed_size(layer.rows, 1):
        raise MissError(match.node, "the result differs from the tokens in size")
    return layer


class _Pieces:
    """Collects the products of sorted rows by expert.

    Attributes:
        count: Number of experts; 0 before the first product.
        joins: Indices of the Concats that join the products of all experts.
        cuts: The expert, by index of the Slice of its rows.
    """

    def __init__(self, graph: Graph, match: Match) -> None:
        self.count = 0
        self.joins = set[int]()
        self.cuts = dict[int, int]()
        self._graph, self._match = graph, match

    def product(self, expert: int, joined: Node) -> tuple[Node, Value]:
        """Return one expert's product of those in a Concat, and the rows of all experts.

        Args:
            expert: Index of the expert.
            joined: The Concat; other nodes except products are returned unchanged.

        Raises:
            MissError: Experts do not have separate products.
        """
        if joined.op != "Concat":
            if joined.op in PRODUCTS:
                raise MissError(joined, "all experts are computed with one weight")
            return joined, joined.outputs[0]
        self.count = self.count or len(joined.inputs)
        if len(joined.inputs) != self.count or joined.attributes["axis"] != 0:
            raise MissError(joined, f"expected a Concat of the rows of {self.count} experts")
        product = self._graph.producer(joined.source(expert))
        if product.op not in PRODUCTS:
            raise MissError(product, "expected a product of an expert's rows with a weight")
        self.joins.add(joined.index)
        return product, self._uncut(self._graph.producer(product.source()), expert)

    def are_read_once(self) -> bool:
        """Return whether each slice and each product has exactly one use."""
        uses = self._graph.uses
        slices = [uses(self._graph.nodes[cut].outputs[0]) for cut in self.cuts]
        return all(len(read) == 1 and len(uses(read[0].node.outputs[0])) == 1 for read in slices)

    def _uncut(self, cut: Node, expert: int) -> Value:
        """Return all rows, sorted by expert, of which ``cut`` is an expert's slice.

        Raises:
            MissError: The slice is not that of ``expert``.
        """
        graph = self._graph
        step = cut.input(cut.attributes["steps_port"]) if cut.op == "Slice" else None
        if cut.attributes.get("axes") != (0,) or (step is not None and fold_scalar(graph, step) != 1):
            raise MissError(cut, "expected a slice of all rows with step 1")
        ends = [self._counted(cut.source(port)) for port in (1, 2)]
        if ends != [list(range(expert)), list(range(expert + 1))]:
            raise MissError(cut, f"expected a slice of the rows of expert {expert}")
        self.cuts[cut.index] = expert
        return cut.source()

    def _counted(self, end: Value) -> list[int]:
        """Return the experts whose numbers of rows ``end`` adds.

        Raises:
            MissError: ``end`` is not a sum of numbers of rows by expert.
        """
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
                raise MissError(node, "expected a sum of numbers of rows by expert")
        return sorted(experts)


@dataclass(frozen=True, slots=True)
class SortedPieces:
    """Slices of rows sorted by expert, and the products of these slices.

    Attributes:
        joins: The expert of each row, ``[rows]``, by index of the Concat that joins the products.
        cuts: The same value and the expert of the slice, by index of the Slice; a product with the expert's weight is
            its only user.
    """

    joins: Mapping[int, Value]
    cuts: Mapping[int, tuple[Value, int]]


def find_sorted_pieces(model: Model) -> SortedPieces:
    """Return the slices of all layers that sort their rows by expert."""
    graph, joins, cuts = model.graph, dict[int, Value](), dict[int, tuple[Value, int]]()
    for match in _SORTED.find(graph):
        pieces = _Pieces(graph, match)
        if isinstance(_sorted(graph, match, pieces), ExpertLayer) and pieces.are_read_once():
            experts = match.nodes["sort"].outputs[0]
            joins |= dict.fromkeys(pieces.joins, experts)
            cuts |= {cut: (experts, expert) for cut, expert in pieces.cuts.items()}
    return SortedPieces(joins, cuts)


def routed_layers(graph: Graph) -> dict[str, ExpertLayer | Miss]:
    """Return the sparse layers by name, or the reason that a layer does not match."""
    separate: dict[str, list[Match]] = {}
    for match in _EXPERT.find(graph):
        separate.setdefault(match.nodes["one_hot"].name, []).append(match)
    layers = {match.nodes["sort"].name: _sorted(graph, match, _Pieces(graph, match)) for match in _SORTED.find(graph)}
    return layers | {name: _separate(graph, matches) for name, matches in separate.items()}
