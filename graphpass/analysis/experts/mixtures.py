"""Find mixtures of experts that one operator can compute."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.experts.layers import is_zero
from graphpass.analysis.experts.products import Expert, read_expert
from graphpass.analysis.experts.quantized import Blocks
from graphpass.analysis.experts.routing import Routing, read_routing
from graphpass.analysis.experts.separate import ONE_HOT, routed_experts, separate_experts, summed
from graphpass.analysis.pattern import Match, look_through, op, var
from graphpass.analysis.symbolic.folding import fold
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss, MissError, or_miss
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, KEEPS_ORDER
from graphpass.ir.values import fixed_size

#: Types that kernels of all providers have.
_TYPES = frozenset({"f16", "f32"})

#: Bits of weights for which QMoE has no kernel that keeps activations in f32.
_ROUNDING_BITS = 8

#: Operators from marks of chosen experts to the search for one's tokens.
_SEARCH = KEEPS_ORDER | {"Gather", "Transpose"}


#: Operators from the result of gathered experts to their last weights.
_TO_WEIGHTS = KEEPS_ORDER | {"Add", "MatMul", "Transpose"}


@dataclass(frozen=True, slots=True)
class Mixture:
    """The experts of one layer.

    Attributes:
        tokens: ``[tokens, hidden]``, or ``[batch, length, hidden]`` if the result has this shape.
        rows: ``[tokens, hidden]``.
        result: The sum of all weighted experts, in the shape of ``tokens``.
        routing: The choice of experts.
        experts: Each of them, or one that computes all in batched products.
        count: Number of experts.
    """

    tokens: Value
    rows: Value
    result: Value
    routing: Routing
    experts: tuple[Expert, ...]
    count: int

    @property
    def blocks(self) -> Blocks | None:
        """Return the scales of one weight, whose form all have; ``None`` without."""
        return self.experts[0].last.blocks

    @property
    def rounds(self) -> bool:
        """Return whether the model lets all products round activations to 8 bits."""
        return all(one.blocks is not None and one.blocks.rounds for each in self.experts for one in each.products)


def why_exact_stays(graph: Graph, one: Mixture) -> Miss | None:
    """Return why quantized experts stay if activations may not be rounded.

    ONNX Runtime 1.32's kernel rounds them for weights in 8 bits at every ``accuracy_level``
    (``onnxruntime/contrib_ops/cpu/moe/moe_quantization_cpu.cc``), by 1 % of results.
    """
    if one.blocks is None or one.blocks.bits != _ROUNDING_BITS or one.rounds:
        return None
    reason = f"QMoE rounds activations to 8 bits for weights in {one.blocks.bits}; activations=int8 lets it"
    return Miss(graph.producer(one.result), reason)


def find_mixtures(model: Model) -> dict[str, Mixture | Miss]:
    """Find layers of experts in an ONNX model by name, for `Model.analysis`."""
    graph = model.graph
    separate = separate_experts(graph)
    found: dict[str, Mixture | Miss] = {}
    for node in graph.of_op("OneHot"):
        if node.index in separate:
            found[node.name] = _separate(model, separate[node.index])
        elif _sorts_tokens(graph, node):
            found[node.name] = Miss(node, "the tokens of its experts are found, but not added up as is known")
    for node in graph.of_op("ReduceSum"):
        match = _DENSE.match(graph, node)
        if isinstance(match, Match):
            found[match.nodes["gates"].name] = _dense(model, match)
            continue
        match = _GATHERED.match(graph, node)
        pairs = _gathered_result(graph, match) if isinstance(match, Match) else None
        if pairs is not None and _gathers_weights(graph, pairs[0]):
            found[node.name] = _gathered(model, node, *pairs)
    return found


def _sorts_tokens(graph: Graph, node: Node) -> bool:
    """Return whether tokens are searched for among the chosen experts."""
    if not isinstance(ONE_HOT.match(graph, node), Match):
        return False
    uses = graph.forward(node.outputs, lambda use: use.node.outputs if use.node.op in _SEARCH else ())
    return any(use.node.op == "NonZero" for use in uses)


@or_miss
def _separate(model: Model, experts: list[Match]) -> Mixture:
    graph = model.graph
    routed = routed_experts(graph, experts)
    read = tuple(read_expert(graph, match["result"]) for match in routed.experts)
    rows = routed.tokens(graph, (expert.rows for expert in read), (expert.form for expert in read))
    return _mixture(model, rows, summed(graph, experts), routed.chosen, routed.weights, read, len(read))


@or_miss
def _dense(model: Model, match: Match) -> Mixture:
    graph = model.graph
    result, count = _dense_result(graph, match)
    sizes = model.analysis(infer_sizes)
    weighted, by_expert = (sizes.shape(match[name]) for name in ("results", "by_expert"))
    if weighted is None or by_expert is None or weighted[:-1] != by_expert[:-1]:
        raise MissError(match.nodes["weighted"], "it does not weigh each token's results")
    expert = read_expert(graph, result)
    rows = _dense_rows(graph, expert.rows, count)
    if any(not one.is_stacked or fixed_size(one.weight, 0) != count for one in expert.products):
        raise MissError(graph.producer(result), f"its weights are not those of {count} experts")
    return _mixture(model, rows, match.node.outputs[0], match["chosen"], match["weights"], (expert,), count)


def _gathers_weights(graph: Graph, result: Value) -> bool:
    """Return whether ``result`` is a product with weights that a router's choice gathers."""
    nodes = graph.backward([result], lambda node: node.inputs if node.op in _TO_WEIGHTS else ())
    gathers = [node for node in nodes if node.op in {"Gather", "GatherND"}]
    return any(graph.producer(graph.look_through(node.source(1), KEEPS_ORDER)).op == "TopK" for node in gathers)


@or_miss
def _gathered(model: Model, node: Node, result: Value, weights: Value) -> Mixture:
    graph = model.graph
    expert = read_expert(graph, result, gathered=True)
    assert expert.index is not None
    rows = _gathered_rows(graph, expert.rows, fixed_size(weights, 1) or 0)
    count = fixed_size(expert.last.weight, 0) or 0
    if any(fixed_size(product.weight, 0) != count for product in expert.first):
        raise MissError(node, f"its weights are not all those of {count} experts")
    return _mixture(model, rows, node.outputs[0], expert.index, weights, (expert,), count)


def _mixture(
    model: Model, rows: Value, total: Value, chosen: Value, weights: Value, experts: tuple[Expert, ...], count: int
) -> Mixture:
    graph, first = model.graph, experts[0]
    _require_sizes(graph, rows, total, first)
    routing = read_routing(graph, chosen, weights, count)
    sizes = model.analysis(infer_sizes)
    before = graph.producer(rows)
    whole = before.source() if before.op == "Reshape" else rows
    shape = sizes.shape(whole)
    if whole.rank == 3 and shape is not None:
        result = total
        while sizes.shape(result) != shape and len(graph.uses(result)) == 1:
            use = graph.uses(result)[0]
            if use.port or use.node.op not in KEEPS_ORDER:
                break
            result = use.node.outputs[0]
        if sizes.shape(result) == shape:
            return Mixture(whole, rows, result, routing, experts, count)
    if total.rank != 2:
        raise MissError(graph.producer(total), "its result has not the shape of the tokens")
    return Mixture(rows, rows, total, routing, experts, count)


def _require_sizes(graph: Graph, rows: Value, total: Value, expert: Expert) -> None:
    hidden, inner = fixed_size(rows, 1), expert.last.inputs
    fits = expert.last.outputs == hidden == fixed_size(total, -1)
    if not fits or any((one.inputs, one.outputs) != (hidden, inner) for one in expert.first):
        raise MissError(graph.producer(total), "sizes of tokens and weights of its experts do not agree")
    if len({(one.bias is None) for one in expert.first}) > 1:
        raise MissError(graph.producer(total), "one product of its experts has a bias, another has none")
    if len({one.blocks and one.blocks.form for one in expert.products}) > 1:
        raise MissError(graph.producer(total), "weights of its experts are quantized in different ways")
    types = {one.element_type for one in expert.products}
    if types != {rows.element_type} or not types <= _TYPES:
        words = f"its tokens are of type {rows.element_type}, weights of {' and '.join(sorted(types))}"
        raise MissError(graph.producer(total), f"{words}, and not both of one of {' and '.join(sorted(_TYPES))}")


#: The sum over experts of results ``[tokens, k, hidden]``, each times its weight.
_GATHERED = op.ReduceSum(op.Reshape(op.Multiply(var("first"), var("second"), name="weighted"), ...), ...)


def _gathered_result(graph: Graph, match: Match) -> tuple[Value, Value] | None:
    """Return results ``[pairs, hidden]`` and weights ``[tokens, k]`` of a match of `_GATHERED`; ``None`` for others."""
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


def _gathered_rows(graph: Graph, rows: Value, slots: int) -> Value:
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


_GATES = op.ScatterElementsUpdate(
    var("nothing"), var("chosen") & op.TopK(..., port=1), var("weights"), ..., axis=1, reduction=None, name="gates"
)


#: The sum over experts of results ``[experts, tokens, hidden]``, each times its weight.
_DENSE = op.ReduceSum(
    op.Multiply(
        var("results"),
        var("by_expert") & look_through(op.Transpose(look_through(_GATES, CASTS), ..., order=(1, 0)), KEEPS_ORDER),
        name="weighted",
    ),
    ...,
)


def _dense_rows(graph: Graph, rows: Value, count: int) -> Value:
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


def _dense_result(graph: Graph, match: Match) -> tuple[Value, int]:
    """Return the results ``[experts, tokens, hidden]`` of a match of `_DENSE`, and the number of experts.

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
