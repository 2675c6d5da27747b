"""Find attention: fused operators, and the decomposed form around each Softmax.

The decomposed form is ``softmax(scale * query @ key^T + mask) @ value`` with variations of exporters:

- scales on the operands or on the product
- masks by Add, Subtract or Select, before or after the scale
- a guard that replaces the NaN of fully masked rows by 0
- conversions around the Softmax
- keys transposed by a Transpose or by the MatMul
- a sink: a column of scores, dropped after the Softmax
- the row maximum subtracted before the Softmax
"""

from __future__ import annotations

from dataclasses import dataclass, field

from graphpass.analysis.attention.bare_operands import bare_operands, scale_of
from graphpass.analysis.attention.sink_gates import SinkGate, sink_gate
from graphpass.analysis.attention.softmax import (
    COLUMN_DROPS,
    Column,
    broadcast_to_itself,
    dropped_column,
    is_attention,
    is_one_per_head,
    score_products,
    sink_of,
    subtracts_row_maximum,
)
from graphpass.analysis.attention.types import OPERATORS, UNAMBIGUOUS, Attention, Mask, Scale
from graphpass.analysis.pattern import Match, op, var
from graphpass.analysis.symbolic.folding import copies_elements, fold_elements, is_zero
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.miss import Miss, MissError, or_miss
from graphpass.ir.model import Model
from graphpass.ir.operators import ARITHMETIC, EXTREMA, KEEPS_ORDER, QUANTIZERS, SHAPE_READERS
from graphpass.ir.quantizers import why_not_fused
from graphpass.ir.values import MASKED_BELOW, is_value_preserving, multiplies_matrices


def find_attention(model: Model) -> tuple[Attention, ...]:
    """Return all attention blocks of ``model``, in execution order.

    A Softmax without a product of activations upstream and another downstream (expert router, sampler) is ignored.
    """
    graph = model.graph
    blocks: list[Attention] = []
    for node in graph.nodes:
        if node.op in OPERATORS:
            query, key, value = (*(node.input(port) for port in OPERATORS[node.op].operands), None, None, None)[:3]
            blocks.append(Attention(node, node.outputs[0], query, key, value))
        elif node.op == "Softmax" and is_attention(graph, node):
            matched = match(graph, node)
            blocks.append(Attention(node, node.outputs[0], miss=matched) if isinstance(matched, Miss) else matched)
    return tuple(blocks)


def find_sink_gates(model: Model) -> dict[int, SinkGate]:
    """Return all gates that apply attention sinks, by index of their Softmax, for `Model.analysis`."""
    graph = model.graph
    gates: dict[int, SinkGate] = {}
    for softmax in graph.of_op("Softmax"):
        weights = or_miss(_weights)(graph, softmax)
        if isinstance(weights, _Weights) and weights.dropped is None:
            gate = sink_gate(graph, softmax, weights.product.outputs[0])
            if gate is not None:
                gates[softmax.index] = gate
    return gates


def find_score_masks(model: Model) -> tuple[tuple[Mask, ...] | Miss, ...]:
    """Return the masks of each attention that `find_attention` finds, in order, for `Model.analysis`."""
    return tuple(_score_masks(model.graph, attention) for attention in model.analysis(find_attention))


@or_miss
def _score_masks(graph: Graph, attention: Attention) -> tuple[Mask, ...]:
    node = attention.node
    if not attention.is_fused:
        return tuple(_scores(graph, node).masks)
    if node.op not in UNAMBIGUOUS:
        raise MissError(node, f"the effective mask of {node.op} cannot be computed ahead of execution")
    masks = node.present(OPERATORS[node.op].masks)
    for value in masks:
        if value.rank is None or value.rank < 2:
            raise MissError(node, f"its mask {value.name} does not have at least 2 dimensions")
    return tuple(map(Mask.of_operator, masks))


#: Operators between the product of query and key and the Softmax, or the maximum of each row of scores.
_TOWARDS_SOFTMAX = ARITHMETIC | EXTREMA | KEEPS_ORDER | {"ReduceMax"}

#: Scores below this threshold count as masked if a scale follows the mask.
_MASKED_BELOW_BEFORE_SCALE = -1e8


@dataclass(frozen=True, slots=True)
class _Weights:
    product: Node
    guarded: bool
    dropped: Column | None


@dataclass(slots=True)
class Scores:
    """The path between the product of query and key and the Softmax, in upstream order.

    Attributes:
        product: The product of query and key.
        scales: Factors of the scores; with a soft cap, those before it.
        masks: Masks of the scores.
        sink: The attention sink.
        column: The column of the sink.
        cap: The Tanh of a soft cap.
        cap_scales: Factors after the soft cap.
        values: All values of the path.
        quantizer: The quantizing or dequantizing operator nearest to the Softmax.
    """

    product: Node
    scales: list[Scale] = field(default_factory=list)
    masks: list[Mask] = field(default_factory=list)
    sink: Value | None = None
    column: Column | None = None
    cap: Node | None = None
    cap_scales: list[Scale] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    quantizer: Node | None = None


@or_miss
def match(graph: Graph, softmax: Node, *, loosely: bool = False) -> Attention:
    """Match scaled dot-product attention around ``softmax``.

    Args:
        graph: The graph.
        softmax: The Softmax.
        loosely: Whether to accept a soft cap, and merged batch and heads axes with an unknown number of heads.

    Returns:
        The attention block; a miss if the subgraph around ``softmax`` has another form.
    """  # noqa: DOC501 - or_miss returns the miss
    weights = _weights(graph, softmax)
    scores = _scores(graph, softmax)
    if scores.cap is not None and not loosely:
        raise MissError(scores.cap, "its scores are soft-capped")
    if scores.sink is not None and not is_one_per_head(scores.sink):
        raise MissError(softmax, f"its attention sink is not one value per head: {scores.sink.name}")
    if scores.quantizer is not None:
        raise MissError(scores.quantizer, "its scores are quantized")
    product, weighing = scores.product, weights.product
    gate = sink_gate(graph, softmax, weighing.outputs[0])
    _check_uses(graph, softmax, scores, frozenset() if gate is None else gate.inside)
    _check_sink(softmax, scores, weights)
    if gate is not None and scores.sink is not None:
        raise MissError(gate.node, "it has two attention sinks")
    query, key, value = bare_operands(graph, product, weighing, loosely=loosely)
    result = weighing.outputs[0]
    if result.rank not in {3, 4}:
        raise MissError(weighing, f"its result {result.name} has {result.rank} dimensions, not 4")
    if product.attributes["transpose_a"] or weighing.attributes["transpose_a"] or weighing.attributes["transpose_b"]:
        raise MissError(product, "a MatMul transposes its query, its probabilities or its value")
    for mask in scores.masks:
        if _outgrows(mask.value, product.outputs[0]):
            raise MissError(product, f"its mask {mask.value.name} has more elements than its scores")
    return Attention(
        softmax,
        result if gate is None else gate.node.outputs[0],
        query.value,
        key.value,
        value.value,
        key_is_transposed=product.attributes["transpose_b"] == key.swapped,
        scales=(*scores.scales, *query.scales, *key.scales),
        cap_scales=None if scores.cap is None else tuple(scores.cap_scales),
        masks=tuple(reversed(scores.masks)),
        guarded=weights.guarded,
        sink=scores.sink if gate is None else gate.sink,
        sink_is_negative=gate is not None and gate.is_negative,
        key_forms=key.forms,
        value_forms=value.forms,
    )


def _check_uses(graph: Graph, softmax: Node, scores: Scores, gate: frozenset[int]) -> None:
    """Check that the scores are used only by the Softmax and a ``gate``.

    Raises:
        MissError: They have another user.
    """
    path = {softmax.index, *(value.node for value in scores.values), *gate}

    def outputs(use: Use) -> tuple[Value, ...]:
        return use.node.outputs if use.node.index not in path and use.node.op in _TOWARDS_SOFTMAX else ()

    # The row maximum is computed from the scores and subtracted from them.
    ends = _TOWARDS_SOFTMAX | SHAPE_READERS
    for use in graph.forward(scores.values, outputs):
        if use.node.index not in path and use.node.op not in ends:
            raise MissError(use.node, "its scores have several users")


def _check_sink(softmax: Node, scores: Scores, weights: _Weights) -> None:
    if scores.column == weights.dropped:
        return
    if scores.column is None:
        reason = "a column of its probabilities is dropped, but its scores have no attention sink"
    elif weights.dropped is None:
        reason = "the column of its attention sink is not dropped from its probabilities"
    else:
        reason = f"its attention sink is the {scores.column} column of its scores, but the {weights.dropped} is dropped"
    raise MissError(softmax, reason)


def _weights(graph: Graph, softmax: Node) -> _Weights:
    value, guarded, dropped = softmax.outputs[0], False, None
    if softmax.attributes["axis"] not in {-1, (value.rank or 0) - 1}:
        raise MissError(softmax, "its Softmax is not over the last axis")
    while True:
        uses = tuple(use for use in graph.uses(value) if use.node.op not in SHAPE_READERS)
        if (guard := _guard(graph, uses)) is not None:
            value, guarded = guard.outputs[0], True
            continue
        if len(uses) != 1:
            raise MissError(graph.producer(value), "its probabilities have several users")
        node = uses[0].node
        is_same = broadcast_to_itself(node) is not None
        if is_same or is_value_preserving(node) or node.op == "Dropout" or _regroups_rows(node):
            value = node.outputs[0]
        elif node.op == "MatMul" and uses[0].port == 0:
            return _Weights(node, guarded, dropped)
        elif node.op in COLUMN_DROPS and dropped is None:
            value, dropped = dropped_column(graph, node)
        else:
            raise MissError(node, why_not_fused(node, f"{node.op} is between its Softmax and the value"))


def _is_zeros(graph: Graph, value: Value) -> str | None:
    """Return ``None`` for zeros, also multiplied or laid out; the reason for other values.

    A product of zeros and infinity counts as zeros, because ``baddbmm`` with ``beta=0`` ignores the added tensor.
    """

    def factors(node: Node) -> tuple[Value | None, ...]:
        return node.inputs if node.op == "Multiply" else node.inputs[:1] if copies_elements(node) else ()

    # `is_zero` looks through copies itself, so that each of them would repeat the walk to their source.
    sources = (node for node in graph.backward([value], factors) if not copies_elements(node))
    return None if any(is_zero(graph, node.outputs[0]) for node in sources) else f"{value.name} is not 0"


#: A Select that replaces the NaN of fully masked rows by 0.
_GUARD = op.Select(op.IsNaN(var("weights")), var().where(_is_zeros), var("weights"))


def _guard(graph: Graph, uses: tuple[Use, ...]) -> Node | None:
    selects = [use.node for use in uses if use.node.op == "Select" and use.port == 2]
    if len(uses) != 2 or len(selects) != 1 or not isinstance(_GUARD.match(graph, selects[0]), Match):
        return None
    return selects[0]


def _is_low(graph: Graph, value: Value) -> str | None:
    constant = fold_elements(graph, value)
    return (
        None
        if constant is not None and (constant <= MASKED_BELOW).all()
        else f"{value.name} is not below {MASKED_BELOW:g}"
    )


#: A Maximum that bounds masked scores from below.
_BOUNDED = op.Maximum(var("value"), var().where(_is_low))


def _unbounded(graph: Graph, value: Value) -> Value:
    """Return ``value`` without a Maximum that bounds masked scores from below."""
    while isinstance(match := _BOUNDED.match(graph, value), Match):
        value = match["value"]
    return value


@or_miss
def read_scores(graph: Graph, softmax: Node) -> Scores:
    """Return the path from the product of query and key to ``softmax``, or a miss.

    Args:
        graph: The graph.
        softmax: The Softmax of decomposed attention.
    """
    return _scores(graph, softmax)


def _scores(graph: Graph, softmax: Node) -> Scores:
    scores = Scores(softmax)
    value = softmax.source()
    while True:
        scores.values.append(value)
        node = graph.producer(value)
        if multiplies_matrices(node):
            scores.product = node
            alpha = node.attributes.get("alpha", 1.0)
            scores.scales += [] if alpha == 1 else [Scale(alpha, divides=False)]
            return scores
        if is_value_preserving(node) or _regroups_rows(node):
            value = node.source()
        elif node.op in QUANTIZERS:
            value, scores.quantizer = node.source(), scores.quantizer or node
        elif (inner := _unbounded(graph, value)) is not value:
            value = inner
        elif subtracts_row_maximum(graph, node):
            if scores.sink is not None:
                raise MissError(node, "its row maximum is subtracted from its scores, but not from its attention sink")
            value = node.source()
        elif node.op == "Tanh" and scores.cap is None:
            scores.cap, scores.cap_scales, scores.scales = node, scores.scales, []
            value = node.source()
        elif node.op == "Concat":
            value = _scores_beside_sink(graph, node, scores)
        else:
            value = _scores_before(graph, node, scores)


def _scores_beside_sink(graph: Graph, concat: Node, scores: Scores) -> Value:
    if scores.sink is not None:
        raise MissError(concat, "it has two attention sinks")
    value, scores.sink, scores.column = sink_of(graph, concat)
    if scores.scales or scores.masks:
        raise MissError(concat, "its attention sink is scaled or masked together with its scores")
    return value


def _scores_before(graph: Graph, node: Node, result: Scores) -> Value:
    if node.op in {"Multiply", "Divide"} and (scale := scale_of(graph, node)) is not None:
        value, factor = scale
        result.scales.append(factor)
        return value
    if isinstance(unchanged := _PLUS_NOTHING.match(graph, node), Match):
        scores, nothing = unchanged["scores"], unchanged["nothing"]
        if (nothing.rank or 9) <= (scores.rank or 0) and not _outgrows(nothing, scores):
            return scores
    if node.op in {"Add", "Subtract"}:
        value, mask = _added_mask(graph, node, tuple(result.scales))
        result.masks.append(mask)
        return value
    if node.op == "Select":
        value, mask = _selected_mask(graph, node, bool(result.scales))
        result.masks.append(mask)
        return value
    if (same := broadcast_to_itself(node)) is not None:
        return same
    raise MissError(node, f"{node.op} is between its scores and its Softmax")


#: PyTorch's ``baddbmm`` with ``beta=0`` is exported with an Add of zeros.
_PLUS_NOTHING = op("Add|Subtract", var("scores"), var("nothing").where(_is_zeros))


def _regroups_rows(node: Node) -> bool:
    """Return whether ``node`` is a Reshape that merges or splits batch, heads and queries.

    ONNX's converter between opsets flattens the operand of a Softmax. Unknown sizes are accepted: the product with the
    value is valid only if they are equal.
    """
    source, result = (node.inputs[0], node.outputs[0]) if node.op in {"Flatten", "Reshape"} else (None, None)
    if source is None or result is None or source.shape is None or result.shape is None:
        return False
    if len(source.shape) == len(result.shape) == 4:
        return source.shape[1] == result.shape[1] and isinstance(source.shape[1], int)
    return {len(source.shape), len(result.shape)} in ({2, 4}, {3, 4})


def _added_mask(graph: Graph, node: Node, scales: tuple[Scale, ...]) -> tuple[Value, Mask]:
    operands, subtracts = (node.source(0), node.source(1)), node.op == "Subtract"
    is_product = [any(True for _ in score_products(graph, operand)) for operand in operands]
    if all(is_product):
        raise MissError(node, f"{node.op} joins two products of activations, for example of content and of positions")
    if subtracts and is_product[1]:
        raise MissError(node, "Subtract subtracts its scores from another tensor")
    scores, mask = operands if is_product[0] else operands[::-1]
    return scores, Mask(mask, is_subtracted=subtracts, scales=scales, merges_heads=_merges_heads(mask, scores))


def _merges_heads(mask: Value, scores: Value) -> bool:
    return scores.rank == 3 and mask.shape is not None and len(mask.shape) == 3 and mask.shape[0] != 1


def _selected_mask(graph: Graph, node: Node, is_scaled: bool) -> tuple[Value, Mask]:
    condition, kept, other = (node.source(port) for port in range(3))
    limit = _MASKED_BELOW_BEFORE_SCALE if is_scaled else MASKED_BELOW
    for scores, fill, keeps in ((kept, other, True), (other, kept, False)):
        constant = fold_elements(graph, fill)
        if constant is not None and (constant < limit).all():
            return scores, Mask(condition, keeps, merges_heads=_merges_heads(condition, scores))
    raise MissError(node, "Select fills its scores with something other than a large negative number")


def _outgrows(mask: Value, scores: Value) -> bool:
    if mask.shape is None or scores.shape is None:
        return False
    pairs = zip(reversed(mask.shape), reversed(scores.shape), strict=False)
    return any(isinstance(own, int) and own > 1 and other == 1 for own, other in pairs)
