"""Matches one decomposed attention around its Softmax; `graphpass.analysis.attention.find` says what it looks like."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphpass.analysis.attention.bare_operands import bare_operands, scale_of
from graphpass.analysis.attention.sinks import COLUMN_DROPS, Column, dropped_column, sink_of, subtracts_row_maximum
from graphpass.analysis.attention.softmax import broadcast_to_itself, product_behind
from graphpass.analysis.attention.types import Decomposed, Mask, NoMatchError, Scale
from graphpass.analysis.masks.facts import unbounded
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.ports import MASKED_BELOW
from graphpass.ir.values import held_constant, keeps_elements

__all__ = ["Scores", "match", "read_scores"]

#: What counts as masked in scores that are still to be scaled down.
_MASKED_BELOW_BEFORE_SCALE = -1e8


@dataclass(slots=True)
class _Weights:
    """What happens to the probabilities on the way to ``product``, which weighs the value with them."""

    product: Node
    guarded: bool
    dropped: Column | None


@dataclass(slots=True)
class Scores:
    """What happens to the scores on the way to the Softmax.

    Attributes:
        product: What multiplies query and key.
        scales: Factors, from the Softmax backwards; where there is a soft cap, those before it.
        masks: From the Softmax backwards.
        sink: One more column; see `graphpass.analysis.attention.find.Attention`.
        column: At which end the sink stands.
        cap: The Tanh of a soft cap.
        cap_scales: Factors behind the soft cap, from the Softmax backwards.
    """

    product: Node | None = None
    scales: list[Scale] = field(default_factory=list)
    masks: list[Mask] = field(default_factory=list)
    sink: Value | None = None
    column: Column | None = None
    cap: Node | None = None
    cap_scales: list[Scale] = field(default_factory=list)


def match(graph: Graph, softmax: Node) -> Decomposed:
    """The parts of the attention around ``softmax``.

    Raises:
        NoMatchError: It is not plain scaled dot-product attention.
    """
    weights = _after(graph, softmax)
    scores = read_scores(graph, softmax)
    if scores.cap is not None:
        raise NoMatchError(f"its scores are soft-capped by Tanh {scores.cap.name}")
    product, weighing = scores.product, weights.product
    assert product is not None
    _check_sink(scores, weights)
    query, key, value = bare_operands(graph, product, weighing)
    result = weighing.outputs[0]
    if result.rank not in {3, 4}:
        raise NoMatchError(f"its result {result.name} has {result.rank} dimensions, not 4")
    if product.attributes["transpose_a"] or weighing.attributes["transpose_a"] or weighing.attributes["transpose_b"]:
        raise NoMatchError("a MatMul transposes its query, its probabilities or its value")
    for mask in scores.masks:
        if _outgrows(mask.value, product.outputs[0]):
            raise NoMatchError(f"its mask {mask.value.name} has more elements than its scores")
    return Decomposed(
        result,
        query.value,
        key.value,
        value.value,
        key_is_transposed=product.attributes["transpose_b"] == key.swapped,
        scales=(*scores.scales, *query.scales, *key.scales),
        masks=tuple(reversed(scores.masks)),
        guarded=weights.guarded,
        sink=scores.sink,
        key_forms=key.forms,
        value_forms=value.forms,
    )


def _check_sink(scores: Scores, weights: _Weights) -> None:
    """That the column which a sink adds is the one that is dropped."""
    if scores.column == weights.dropped:
        return
    if scores.column is None:
        raise NoMatchError("a column of its probabilities is dropped, but its scores have no attention sink")
    if weights.dropped is None:
        raise NoMatchError("an attention sink that is not dropped from its probabilities")
    raise NoMatchError(f"an attention sink that is the {scores.column} column, while the {weights.dropped} is dropped")


def _after(graph: Graph, softmax: Node) -> _Weights:
    """From the Softmax forward to the product with the value."""
    value, guarded, dropped = softmax.outputs[0], False, None
    if softmax.attributes["axis"] != (value.rank or 0) - 1 and softmax.attributes["axis"] != -1:
        raise NoMatchError("its Softmax is not over the last axis")
    while True:
        uses = graph.uses(value)
        if (guard := _guard(graph, uses)) is not None:
            value, guarded = guard.outputs[0], True
            continue
        if len(uses) != 1:
            raise NoMatchError("its probabilities are used in several places")
        node = uses[0].node
        if keeps_elements(node) or node.op == "Dropout" or _regroups_heads(node):
            value = node.outputs[0]
        elif node.op == "MatMul" and uses[0].port == 0:
            return _Weights(node, guarded, dropped)
        elif node.op in COLUMN_DROPS and dropped is None:
            value, dropped = dropped_column(graph, node)
        else:
            raise NoMatchError(f"{node.op} {node.name} lies between its Softmax and the value")


def _guard(graph: Graph, uses: tuple[Use, ...]) -> Node | None:
    """The Select of ``Select(IsNaN(x), 0, x)``, where ``uses`` are the uses of x."""
    tests = [use.node for use in uses if use.node.op == "IsNaN"]
    selects = [use.node for use in uses if use.node.op == "Select" and use.port == 2]
    if len(uses) != 2 or len(tests) != 1 or len(selects) != 1:
        return None
    select = selects[0]
    replacement = held_constant(graph, select.inputs[1])
    if select.inputs[0] != tests[0].outputs[0] or replacement is None or (replacement != 0).any():
        return None
    return select


def read_scores(graph: Graph, softmax: Node) -> Scores:
    """From the Softmax back to the product of query and key.

    Raises:
        NoMatchError: Something else lies between the two.
    """
    found = Scores()
    value = softmax.inputs[0]
    while True:
        assert value is not None
        node = graph.producer(value)
        if node.op == "MatMul":
            found.product = node
            return found
        if keeps_elements(node) or _regroups_heads(node):
            value = node.inputs[0]
        elif (inner := unbounded(graph, value)) is not value:
            value = inner
        elif subtracts_row_maximum(graph, node):
            if found.sink is not None:
                raise NoMatchError("an attention sink beside scores whose maximum was subtracted")
            value = node.inputs[0]
        elif node.op == "Tanh" and found.cap is None:
            found.cap, found.cap_scales, found.scales = node, found.scales, []
            value = node.inputs[0]
        elif node.op == "Concat":
            value = _scores_beside_sink(graph, node, found)
        else:
            value = _scores_before(graph, node, found)


def _scores_beside_sink(graph: Graph, concat: Node, found: Scores) -> Value:
    """The scores to which ``concat`` adds a sink, which is noted in ``found``."""
    if found.sink is not None:
        raise NoMatchError("an attention sink beside another one")
    value, found.sink, found.column = sink_of(graph, concat)
    if found.scales or found.masks:
        raise NoMatchError("an attention sink that is scaled or masked along with its scores")
    return value


def _scores_before(graph: Graph, node: Node, found: Scores) -> Value:
    """The scores before ``node`` scaled or masked them, which is noted in ``found``."""
    if node.op in {"Multiply", "Divide"} and (scale := scale_of(graph, node)) is not None:
        value, factor = scale
        found.scales.append(factor)
        return value
    if node.op in {"Add", "Subtract"}:
        if (unchanged := _plus_nothing(graph, node)) is not None:
            return unchanged
        value, mask = _added_mask(graph, node, tuple(found.scales))
        found.masks.append(mask)
        return value
    if node.op == "Select":
        value, mask = _selected_mask(graph, node, bool(found.scales))
        found.masks.append(mask)
        return value
    if (same := broadcast_to_itself(node)) is not None:
        return same
    raise NoMatchError(f"{node.op} {node.name} lies between its scores and its Softmax")


def _plus_nothing(graph: Graph, node: Node) -> Value | None:
    """The scores to which ``node`` adds zeros, as PyTorch's ``baddbmm`` with ``beta=0`` is exported."""
    first, second = node.inputs
    assert first is not None
    assert second is not None
    for scores, other in ((first, second), (second, first))[: 1 if node.op == "Subtract" else 2]:
        keeps_shape = (other.rank or 9) <= (scores.rank or 0) and not _outgrows(other, scores)
        if keeps_shape and _is_zero(graph, other):
            return scores
    return None


def _is_zero(graph: Graph, value: Value | None) -> bool:
    """Whether ``value`` holds zeros alone: such a constant, copied or laid out, or a product with one.

    What ``baddbmm`` multiplies with 0 it does not read, so that it counts as zero even if it could be infinite.
    """
    while value is not None:
        node = graph.producer(value)
        if node.op == "Multiply":
            return any(_is_zero(graph, operand) for operand in node.inputs)
        if not keeps_elements(node) and node.op not in {"Broadcast", "Reshape", "Unsqueeze"}:
            constant = graph.constant(value)
            return constant is not None and not constant.any()
        value = node.inputs[0]
    return False


def _regroups_heads(node: Node) -> bool:
    """Whether ``node`` reshapes scores between ``[batch, heads, ..]`` and ``[batch * heads, ..]``, or not at all.

    Dimensions that are not known need no proof: the product with the value fits only if they are the right ones.
    """
    source, result = (node.inputs[0], node.outputs[0]) if node.op == "Reshape" else (None, None)
    if source is None or result is None or source.shape is None or result.shape is None:
        return False
    if len(source.shape) == len(result.shape) == 4:
        return source.shape[1] == result.shape[1] and isinstance(source.shape[1], int)
    return {len(source.shape), len(result.shape)} == {3, 4}


def _added_mask(graph: Graph, node: Node, scales: tuple[Scale, ...]) -> tuple[Value, Mask]:
    first, second = node.inputs
    assert first is not None
    assert second is not None
    behind = product_behind(graph, first), product_behind(graph, second)
    subtracts = node.op == "Subtract"
    if behind == (True, True):
        raise NoMatchError(f"{node.op} {node.name} joins two products: positions or masks computed by one")
    if subtracts and behind[1]:
        raise NoMatchError(f"Subtract {node.name} subtracts its scores")
    scores, mask = (first, second) if behind[0] else (second, first)
    return scores, Mask(mask, is_subtracted=subtracts, scales=scales, merges_heads=_merges_heads(mask, scores))


def _merges_heads(mask: Value, scores: Value) -> bool:
    """Whether the first axis of ``mask`` is that of scores ``[batch * heads, length, sequence]``."""
    return scores.rank == 3 and mask.shape is not None and len(mask.shape) == 3 and mask.shape[0] != 1


def _selected_mask(graph: Graph, node: Node, is_scaled: bool) -> tuple[Value, Mask]:
    condition, kept, other = node.inputs
    assert condition is not None
    limit = _MASKED_BELOW_BEFORE_SCALE if is_scaled else MASKED_BELOW
    for scores, fill, keeps in ((kept, other, True), (other, kept, False)):
        constant = held_constant(graph, fill)
        if scores is not None and constant is not None and (constant < limit).all():
            return scores, Mask(condition, keeps, merges_heads=_merges_heads(condition, scores))
    raise NoMatchError(f"Select {node.name} fills its scores with something other than a large negative number")


def _outgrows(mask: Value, scores: Value) -> bool:
    """Whether ``mask`` is longer along an axis along which the scores have one element."""
    if mask.shape is None or scores.shape is None:
        return False
    pairs = zip(reversed(mask.shape), reversed(scores.shape), strict=False)
    return any(isinstance(own, int) and own > 1 and other == 1 for own, other in pairs)
