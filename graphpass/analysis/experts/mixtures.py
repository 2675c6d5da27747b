"""Mixtures of experts that can be fused to one operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.equations.quantized_blocks import ROUNDING_BITS, SMALLEST_BLOCK, QuantizedBlocks
from graphpass.analysis.experts.activation import Activation, name_activation
from graphpass.analysis.experts.products import Product, read_expert
from graphpass.analysis.experts.routed import ONE_HOT, ExpertLayer, routed_layers
from graphpass.analysis.experts.routing import Routing, read_routing
from graphpass.analysis.pattern import Match, look_through, op, var
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Index
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.folding import fold, is_zero
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss, MissError, or_miss
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, KEEPS_ORDER, LAYOUT
from graphpass.ir.values import fixed_size

#: Types with a kernel in all execution providers.
_TYPES = frozenset({"f16", "f32"})

#: Operators from the OneHot of selected experts to the NonZero that finds an expert's tokens.
_SEARCH = KEEPS_ORDER | {"Gather", "Transpose"}


#: Operators from the result of gathered experts upstream to their last weights.
_TO_WEIGHTS = KEEPS_ORDER | {"Add", "MatMul", "Transpose"}


@dataclass(frozen=True, slots=True)
class Mixture:
    """A layer of experts that can be fused to one operator.

    Attributes:
        layer: The layer.
        tokens: The input, ``[tokens, hidden]``, or ``[batch, length, hidden]`` if the result has this shape.
        result: The weighted sum of all experts, in the shape of ``tokens``.
        routing: The selection of experts.
        activation: The activation between the products.
        first: For each expert, the products before the activation: gate and linear part, or one product.
    """

    layer: ExpertLayer
    tokens: Value
    result: Value
    routing: Routing
    activation: Activation
    first: tuple[tuple[Product, ...], ...]

    @property
    def last(self) -> tuple[tuple[Product, ...], ...]:
        """Return, for each expert, a tuple of its product after the activation."""
        return tuple(expert.products[-1:] for expert in self.layer.experts)

    @property
    def products(self) -> tuple[tuple[Product, ...], ...]:
        """Return all products of each expert."""
        return tuple(expert.products for expert in self.layer.experts)

    @property
    def blocks(self) -> QuantizedBlocks | None:
        """Return the quantization of the weights, which all have the same; ``None`` without."""
        return self.last[0][0].blocks

    @property
    def rounds(self) -> bool:
        """Return whether the model allows all products to round activations to 8 bits."""
        return all(product.blocks is not None and product.blocks.rounds for each in self.products for product in each)


def why_exact_stays(graph: Graph, mixture: Mixture) -> Miss | None:
    """Return a reason if QMoE would round activations that the model does not round.

    ONNX Runtime 1.32's kernel rounds activations for weights in 8 bits at every ``accuracy_level``
    (``onnxruntime/contrib_ops/cpu/moe/moe_quantization_cpu.cc``), which changes results by 1 %.

    Args:
        graph: The graph.
        mixture: The layer that QMoE would compute.
    """
    if mixture.blocks is None or mixture.blocks.bits != ROUNDING_BITS or mixture.rounds:
        return None
    reason = f"QMoE rounds activations to 8 bits for weights in {mixture.blocks.bits} bits; activations=int8 allows it"
    return Miss(graph.producer(mixture.result), reason)


def find_mixtures(model: Model) -> dict[str, Mixture | Miss]:
    """Return the layers of experts in an ONNX model by name, for `Model.analysis`."""
    graph = model.graph
    layers = routed_layers(graph)
    for node in graph.of_op("OneHot"):
        if node.name not in layers and _sorts_tokens(graph, node):
            layers[node.name] = Miss(node, "results of the experts are not added to their tokens in a known form")
    for node in graph.of_op("ReduceSum"):
        match = _DENSE.match(graph, node)
        if isinstance(match, Match):
            layers[match.nodes["gates"].name] = _dense(model, match)
            continue
        match = _GATHERED.match(graph, node)
        pairs = _gathered_result(graph, match) if isinstance(match, Match) else None
        if pairs is not None and _gathers_weights(graph, pairs[0]):
            layers[node.name] = _gathered(model, node, *pairs)
    return {name: layer if isinstance(layer, Miss) else _mixture(model, layer) for name, layer in layers.items()}


def _sorts_tokens(graph: Graph, node: Node) -> bool:
    """Return whether a NonZero finds the tokens of each selected expert downstream of ``node``."""
    if not isinstance(ONE_HOT.match(graph, node), Match):
        return False
    uses = graph.forward(node.outputs, lambda use: use.node.outputs if use.node.op in _SEARCH else ())
    return any(use.node.op == "NonZero" for use in uses)


@or_miss
def _dense(model: Model, match: Match) -> ExpertLayer:
    graph = model.graph
    result, count = _dense_result(graph, match)
    sizes = model.analysis(infer_sizes)
    weighted, by_expert = (sizes.shape(match[name]) for name in ("results", "by_expert"))
    if weighted is None or by_expert is None or weighted[:-1] != by_expert[:-1]:
        raise MissError(match.nodes["weighted"], "expected one weight for each expert and token")
    expert = read_expert(graph, result)
    rows = _copied(model, expert.rows, lambda index: index[-2])
    if any(not product.is_stacked or fixed_size(product.weight, 0) != count for product in expert.products):
        raise MissError(graph.producer(result), f"weights are not stacked for {count} experts")
    chosen, weights, total = match["chosen"], match["weights"], match.node.outputs[0]
    return ExpertLayer(match.nodes["gates"].name, rows, chosen, weights, (expert,), count, total)


def _gathers_weights(graph: Graph, result: Value) -> bool:
    """Return whether ``result`` is a product with weights gathered by a router's TopK."""
    nodes = graph.backward([result], lambda node: node.inputs if node.op in _TO_WEIGHTS else ())
    gathers = [node for node in nodes if node.op in {"Gather", "GatherND"}]
    return any(graph.producer(graph.look_through(node.source(1), KEEPS_ORDER)).op == "TopK" for node in gathers)


@or_miss
def _gathered(model: Model, node: Node, result: Value, weights: Value) -> ExpertLayer:
    graph = model.graph
    expert = read_expert(graph, result, gathered=True)
    assert expert.index is not None
    slots = ex.number(fixed_size(weights, 1) or 1)
    # Rows are sorted by token: k rows of the first, k rows of the second, and so on.
    rows = _copied(model, expert.rows, lambda index: ex.floor_divide(index[0], slots))
    count = fixed_size(expert.products[-1].weight, 0) or 0
    if any(fixed_size(product.weight, 0) != count for product in expert.products):
        raise MissError(node, f"weights are not all stacked for {count} experts")
    return ExpertLayer(node.name, rows, expert.index, weights, (expert,), count, node.outputs[0])


@or_miss
def _mixture(model: Model, layer: ExpertLayer) -> Mixture:
    graph, rows, total = model.graph, layer.rows, layer.total
    _require_sizes(graph, layer)
    routing = read_routing(graph, layer.chosen, layer.weights, layer.count)
    activation, places = name_activation(graph, layer.experts[0].function)
    first = tuple(tuple(expert.products[place] for place in places) for expert in layer.experts)
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
            return Mixture(layer, whole, result, routing, activation, first)
    if total.rank != 2:
        raise MissError(graph.producer(total), "expected a result in the shape of the tokens")
    return Mixture(layer, rows, total, routing, activation, first)


def _require_sizes(graph: Graph, layer: ExpertLayer) -> None:
    rows, total, (*first, last) = layer.rows, layer.total, layer.experts[0].products
    hidden, end = fixed_size(rows, 1), graph.producer(total)
    fits = last.outputs == hidden == fixed_size(total, -1)
    if not fits or any((product.inputs, product.outputs) != (hidden, last.inputs) for product in first):
        raise MissError(end, "sizes of tokens and of the experts' weights do not match")
    if len({(product.bias is None) for product in first}) > 1:
        raise MissError(end, "only one of the products before the activation has a bias")
    if len({product.blocks and product.blocks.form for product in (*first, last)}) > 1:
        raise MissError(end, "weights of the experts differ in their quantization")
    for product in (*first, last):
        if product.blocks is not None and product.inputs == product.blocks.size == SMALLEST_BLOCK:
            # QMoE reads zero points of single blocks in another layout; larger blocks can be halved.
            reason = f"the weight has a single block of {SMALLEST_BLOCK} inputs"
            raise MissError(graph.producer(product.weight), reason)
    types = {product.element_type for product in (*first, last)}
    if types != {rows.element_type} or not types <= _TYPES:
        words = f"tokens are of type {rows.element_type}, weights of {' and '.join(sorted(types))}"
        raise MissError(end, f"{words}; expected both of one type of {' and '.join(sorted(_TYPES))}")


#: The sum over experts of results ``[tokens, k, hidden]``, each times its weight.
_GATHERED = op.ReduceSum(op.Reshape(op.Multiply(var("first"), var("second"), name="weighted"), ...), ...)


def _gathered_result(graph: Graph, match: Match) -> tuple[Value, Value] | None:
    """Return results ``[tokens * k, hidden]`` and weights ``[tokens, k]`` of a `_GATHERED` match, if valid."""
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


def _copied(model: Model, rows: Value, place: Callable[[Index], Expr]) -> Value:
    """Return the tensor ``[tokens, hidden]`` of which ``rows`` are copies.

    Args:
        model: The model.
        rows: The copied rows.
        place: Returns the token at an index of ``rows``.

    Raises:
        MissError: Rows are not such copies.
    """
    graph, value, tokens = model.graph, rows, rows
    path = set[int]()
    while (node := graph.producer(value)).op in LAYOUT | {"Gather"}:
        path.add(node.index)
        value = node.source()
        tokens = value if value.rank == 2 and fixed_size(value, 1) == fixed_size(rows, -1) else tokens
    if tokens.rank == 2 and rows.rank is not None:
        elements = model.analysis(find_elements).cut(tokens, path)
        index = tuple(ex.index(f"x{axis}", size) for axis, size in enumerate(elements.shape(rows)))
        if elements.of(rows, index) is elements.of(tokens, (place(index), index[-1])):
            return tokens
    raise MissError(graph.producer(rows), "expected a copy of each token for each of its experts")


def _dense_result(graph: Graph, match: Match) -> tuple[Value, int]:
    """Return the results ``[experts, tokens, hidden]`` of a match of `_DENSE`, and the number of experts.

    Raises:
        MissError: The axes of the sum or the weights differ.
    """
    node, gates = match.node, match.nodes["gates"]
    axes, total = fold(graph, node.input(1)), match["results"]
    if axes is None or axes.tolist() != [0] or node.attributes.get("keeps_axes") is not False:
        raise MissError(node, "expected a sum over the axis of experts")
    count = fixed_size(gates.outputs[0], 1)
    result = graph.look_through(total, KEEPS_ORDER)
    width = fixed_size(total, -1)
    if count is None or not is_zero(graph, match["nothing"]) or gates.outputs[0].rank != 2:
        raise MissError(gates, "expected weights [tokens, experts], 0 for experts that are not selected")
    by_expert, results = match["by_expert"].shape or (), total.shape or ()
    is_apart = by_expert[:1] == results[:1] == (count,) and by_expert[-1:] == (1,) and len(by_expert) == len(results)
    if not is_apart or result.rank != 3 or fixed_size(result, 0) != count or fixed_size(result, 2) != width:
        raise MissError(match.nodes["weighted"], "expected one weight for each result of an expert")
    return result, count
