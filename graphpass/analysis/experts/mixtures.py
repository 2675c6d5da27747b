"""Find mixtures of experts that one operator can compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphpass.analysis.experts.dense import DENSE, dense_result, dense_rows
from graphpass.analysis.experts.gathered import GATHERED, gathered_result, gathered_rows
from graphpass.analysis.experts.layers import gathered_tokens
from graphpass.analysis.experts.products import Expert, read_expert
from graphpass.analysis.experts.quantized import Blocks
from graphpass.analysis.experts.routing import Routing, read_routing
from graphpass.analysis.experts.separate import EXPERT, ONE_HOT, routed_experts, summed
from graphpass.analysis.pattern import Match
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss, MissError
from graphpass.ir.model import Model
from graphpass.ir.operators import KEEPS_ORDER
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
    separate: dict[int, list[Match]] = {}
    for node in graph.of_op("ScatterElementsUpdate"):
        expert = EXPERT.match(graph, node)
        if isinstance(expert, Match):
            separate.setdefault(expert.nodes["one_hot"].index, []).append(expert)
    found: dict[str, Mixture | Miss] = {}
    for node in graph.of_op("OneHot"):
        if node.index in separate:
            found[node.name] = _attempt(lambda experts: _separate(model, experts), separate[node.index])
        elif _sorts_tokens(graph, node):
            found[node.name] = Miss(node, "the tokens of its experts are found, but not added up as is known")
    for node in graph.of_op("ReduceSum"):
        match = DENSE.match(graph, node)
        if isinstance(match, Match):
            found[match.nodes["gates"].name] = _attempt(lambda one: _dense(model, one), match)
            continue
        match = GATHERED.match(graph, node)
        pairs = gathered_result(graph, match) if isinstance(match, Match) else None
        if pairs is not None and _gathers_weights(graph, pairs[0]):
            found[node.name] = _attempt(lambda one: _gathered(model, *one), (node, *pairs))
    return found


def _attempt(find: Callable[[Any], Mixture], found: Any) -> Mixture | Miss:
    try:
        return find(found)
    except MissError as error:
        return error.miss


def _sorts_tokens(graph: Graph, node: Node) -> bool:
    """Return whether tokens are searched for among the chosen experts."""
    if not isinstance(ONE_HOT.match(graph, node), Match):
        return False
    uses = graph.forward(node.outputs, lambda use: use.node.outputs if use.node.op in _SEARCH else ())
    return any(use.node.op == "NonZero" for use in uses)


def _separate(model: Model, experts: list[Match]) -> Mixture:
    graph = model.graph
    routed = routed_experts(graph, experts)
    read = tuple(read_expert(graph, match["result"]) for match in routed.experts)
    rows = {
        gathered_tokens(graph, expert.rows, match["token"]) for match, expert in zip(routed.experts, read, strict=True)
    }
    if len(rows) > 1 or len({expert.form for expert in read}) > 1:
        raise MissError(routed.anchor, "its experts read different tokens, or compute different things")
    return _mixture(model, rows.pop(), summed(graph, experts), routed.chosen, routed.weights, read, len(read))


def _dense(model: Model, match: Match) -> Mixture:
    graph = model.graph
    result, count = dense_result(graph, match)
    sizes = model.analysis(infer_sizes)
    weighted, by_expert = (sizes.shape(match[name]) for name in ("results", "by_expert"))
    if weighted is None or by_expert is None or weighted[:-1] != by_expert[:-1]:
        raise MissError(match.nodes["weighted"], "it does not weigh each token's results")
    expert = read_expert(graph, result)
    rows = dense_rows(graph, expert.rows, count)
    if any(not one.is_stacked or fixed_size(one.weight, 0) != count for one in expert.products):
        raise MissError(graph.producer(result), f"its weights are not those of {count} experts")
    return _mixture(model, rows, match.node.outputs[0], match["chosen"], match["weights"], (expert,), count)


def _gathers_weights(graph: Graph, result: Value) -> bool:
    """Return whether ``result`` is a product with weights that a router's choice gathers."""
    nodes = graph.backward([result], lambda node: node.inputs if node.op in _TO_WEIGHTS else ())
    gathers = [node for node in nodes if node.op in {"Gather", "GatherND"}]
    return any(graph.producer(graph.look_through(node.source(1), KEEPS_ORDER)).op == "TopK" for node in gathers)


def _gathered(model: Model, node: Node, result: Value, weights: Value) -> Mixture:
    graph = model.graph
    expert = read_expert(graph, result, gathered=True)
    assert expert.index is not None
    rows = gathered_rows(graph, expert.rows, fixed_size(weights, 1) or 0)
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
