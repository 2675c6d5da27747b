"""Matches one decomposed attention around its Softmax; `graphpass.analysis.attention` says what it looks like."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.values import SAME_ELEMENTS, held_constant, is_computed, is_scalar, keeps_elements
from graphpass.graph import Graph, Node, Use, Value

__all__ = ["Decomposed", "Mask", "NoMatchError", "Scale", "is_attention", "match"]

#: How many bits of a number these types keep; one that keeps more holds all values of one that keeps less.
_WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}

#: Below this, ``exp`` of a score is 0 beside any other score.
_MASKED_BELOW = -1e3

#: The same for scores that are still to be scaled down.
_MASKED_BELOW_BEFORE_SCALE = -1e8

#: Orders that swap the last two axes.
_SWAPS = ((0, 1, 3, 2), (0, 2, 1))

_SCORE_OPS = (
    frozenset({"Maximum", "Add", "Subtract", "Multiply", "Divide", "Select", "Tanh", "Concat", "Reshape"})
    | SAME_ELEMENTS
)


@dataclass(frozen=True, slots=True)
class Scale:
    """A factor of the scores: ``value``, or its inverse where ``divides``. All its dimensions are 1."""

    value: Value
    divides: bool


@dataclass(frozen=True, slots=True)
class Mask:
    """What is masked: ``value`` is added to the scores, or selects (where ``keeps`` is not ``None``).

    Attributes:
        value: The tensor that is added, or the boolean condition.
        keeps: ``True`` where a true condition keeps a score, ``False`` where it masks it, ``None`` for an added mask.
        is_subtracted: Whether ``value`` is subtracted instead of added.
        scales: Factors that are applied to the scores when the mask is in them already.
        merges_heads: Whether its first of three axes is batch and heads in one, as in ``[batch * heads, 1, sequence]``.
    """

    value: Value
    keeps: bool | None = None
    is_subtracted: bool = False
    scales: tuple[Scale, ...] = ()
    merges_heads: bool = False


@dataclass(frozen=True, slots=True)
class Decomposed:
    """The parts of ``softmax(scale * query @ key^T + mask) @ value``; see `Attention` for what they mean."""

    output: Value
    query: Value
    key: Value
    value: Value
    key_is_transposed: bool
    scales: tuple[Scale, ...]
    masks: tuple[Mask, ...]
    guarded: bool


class NoMatchError(Exception):
    """The reason why a Softmax is not plain attention."""


def is_attention(graph: Graph, softmax: Node) -> bool:
    """Whether ``softmax`` stands between a product of two computed tensors and a product with a computed tensor."""
    scores = softmax.inputs[0]
    return scores is not None and _product_behind(graph, scores) and _product_ahead(graph, softmax.outputs[0])


def _product_behind(graph: Graph, value: Value) -> bool:
    """Whether a product of two computed tensors is reached backwards through arithmetic on scores."""
    pending, seen = [value], set()
    while pending:
        node = graph.producer(pending.pop())
        if node.index in seen:
            continue
        seen.add(node.index)
        if node.op == "MatMul" and all(is_computed(graph, operand) for operand in node.inputs):
            return True
        if node.op in _SCORE_OPS:
            operands = node.inputs[1:] if node.op == "Select" else node.inputs
            pending.extend(operand for operand in operands if operand is not None)
    return False


def _product_ahead(graph: Graph, value: Value) -> bool:
    pending, seen = [value], set()
    while pending:
        for use in graph.uses(pending.pop()):
            if use.node.index in seen:
                continue
            seen.add(use.node.index)
            if use.node.op == "MatMul" and use.port == 0 and is_computed(graph, use.node.inputs[1]):
                return True
            if use.node.op in _SCORE_OPS | {"IsNaN", "Slice", "StridedSlice", "Dropout"}:
                pending.extend(use.node.outputs)
    return False


def match(graph: Graph, softmax: Node) -> Decomposed:
    """The parts of the attention around ``softmax``.

    Raises:
        NoMatchError: It is not plain scaled dot-product attention.
    """
    output, guarded = _after(graph, softmax)
    product, scales, masks = _before(graph, softmax)
    query, query_scales, _ = _operand(graph, product.inputs[0], transposes=False)
    key, key_scales, swapped = _operand(graph, product.inputs[1], transposes=True)
    value, _, _ = _operand(graph, _narrow(graph, output.inputs[1], query.element_type), transposes=False, scaled=False)
    result = output.outputs[0]
    if query.rank == 3:
        query, key, value = (_with_heads(graph, operand) for operand in (query, key, value))
    for name, operand in (("query", query), ("key", key), ("value", value)):
        if operand.rank != 4:
            raise NoMatchError(f"its {name} {operand.name} has {operand.rank} dimensions, not 4")
    if result.rank not in {3, 4}:
        raise NoMatchError(f"its result {result.name} has {result.rank} dimensions, not 4")
    if product.attributes["transpose_a"] or output.attributes["transpose_a"] or output.attributes["transpose_b"]:
        raise NoMatchError("a MatMul transposes its query, its probabilities or its value")
    for mask in masks:
        if _outgrows(mask.value, product.outputs[0]):
            raise NoMatchError(f"its mask {mask.value.name} has more elements than its scores")
    is_transposed = product.attributes["transpose_b"] == swapped
    scales = [*scales, *query_scales, *key_scales]
    return Decomposed(result, query, key, value, is_transposed, tuple(scales), masks, guarded)


def _with_heads(graph: Graph, operand: Value) -> Value:
    """``[batch, heads, length, size]`` of which ``operand`` is ``[batch * heads, length, size]``."""
    node = graph.producer(operand)
    source = node.inputs[0] if node.op == "Reshape" else None
    if source is None or source.shape is None or len(source.shape) != 4 or not isinstance(source.shape[1], int):
        raise NoMatchError(f"its operand {operand.name} merges batch and heads, and is not made of one that does not")
    if operand.shape is None or operand.shape[-1] != source.shape[-1] or not isinstance(source.shape[-1], int):
        raise NoMatchError(f"it cannot be told how {node.op} {node.name} merges batch and heads")
    return source


def _after(graph: Graph, softmax: Node) -> tuple[Node, bool]:
    """From the Softmax forward to the product with the value: (that MatMul, guarded)."""
    value, guarded = softmax.outputs[0], False
    if softmax.attributes["axis"] != (value.rank or 0) - 1 and softmax.attributes["axis"] != -1:
        raise NoMatchError("its Softmax is not over the last axis")
    while True:
        uses = graph.uses(value)
        if (guard := _guard(graph, uses)) is not None:
            value, guarded = guard.outputs[0], True
        elif len(uses) != 1:
            raise NoMatchError("its probabilities are used in several places")
        elif keeps_elements(uses[0].node) or uses[0].node.op == "Dropout" or _regroups_heads(uses[0].node):
            value = uses[0].node.outputs[0]
        elif uses[0].node.op == "MatMul" and uses[0].port == 0:
            return uses[0].node, guarded
        elif uses[0].node.op in {"Slice", "StridedSlice"}:
            raise NoMatchError("its probabilities are sliced: an attention sink")
        else:
            raise NoMatchError(f"{uses[0].node.op} {uses[0].node.name} lies between its Softmax and the value")


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


def _before(graph: Graph, softmax: Node) -> tuple[Node, list[Scale], tuple[Mask, ...]]:
    """From the Softmax back to the product of query and key: (that MatMul, scales, masks)."""
    scales: list[Scale] = []
    masks: list[Mask] = []
    value = softmax.inputs[0]
    while True:
        assert value is not None
        node = graph.producer(value)
        if node.op == "MatMul":
            return node, scales, tuple(reversed(masks))
        if keeps_elements(node) or _regroups_heads(node) or _only_bounds(graph, node):
            value = node.inputs[0]
        elif node.op in {"Multiply", "Divide"} and (scale := _scale(graph, node)) is not None:
            value, factor = scale
            scales.append(factor)
        elif node.op in {"Add", "Subtract"}:
            value, mask = _added_mask(graph, node, tuple(scales))
            masks.append(mask)
        elif node.op == "Select":
            value, mask = _selected_mask(graph, node, bool(scales))
            masks.append(mask)
        elif node.op == "Tanh":
            raise NoMatchError(f"its scores are soft-capped by Tanh {node.name}")
        elif node.op == "Concat":
            raise NoMatchError(f"Concat {node.name} adds columns to its scores: an attention sink")
        else:
            raise NoMatchError(f"{node.op} {node.name} lies between its scores and its Softmax")


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


def _only_bounds(graph: Graph, node: Node) -> bool:
    """Whether ``node`` is the Maximum of scores and what masked scores are set to."""
    if node.op != "Maximum":
        return False
    bound = held_constant(graph, node.inputs[1])
    return bound is not None and bool((bound < _MASKED_BELOW).all())


def _scale(graph: Graph, node: Node) -> tuple[Value, Scale] | None:
    """What ``node`` scales as a whole, and by what."""
    first, second = node.inputs
    assert first is not None
    assert second is not None
    divides = node.op == "Divide"
    # Where both have one element, the constant is the scale: a model with one head and a step of one token.
    second_scales = is_scalar(second) and not (is_scalar(first) and not is_computed(graph, first))
    if second_scales or (divides and is_scalar(second)):
        return first, Scale(second, divides)
    return (second, Scale(first, divides=False)) if is_scalar(first) and not divides else None


def _added_mask(graph: Graph, node: Node, scales: tuple[Scale, ...]) -> tuple[Value, Mask]:
    first, second = node.inputs
    assert first is not None
    assert second is not None
    behind = _product_behind(graph, first), _product_behind(graph, second)
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
    limit = _MASKED_BELOW_BEFORE_SCALE if is_scaled else _MASKED_BELOW
    for scores, fill, keeps in ((kept, other, True), (other, kept, False)):
        constant = held_constant(graph, fill)
        if scores is not None and constant is not None and (constant < limit).all():
            return scores, Mask(condition, keeps, merges_heads=_merges_heads(condition, scores))
    raise NoMatchError(f"Select {node.name} fills its scores with something other than a large negative number")


def _operand(
    graph: Graph, value: Value | None, *, transposes: bool, scaled: bool = True
) -> tuple[Value, list[Scale], bool]:
    """``value`` without what was put on it: scales, a swap of the last two axes where ``transposes``, idle Converts."""
    scales: list[Scale] = []
    swapped = False
    while True:
        assert value is not None
        node = graph.producer(value)
        if scaled and node.op in {"Multiply", "Divide"} and (scale := _scale(graph, node)) is not None:
            value, factor = scale
            scales.append(factor)
        elif transposes and node.op == "Transpose" and node.attributes.get("order") in _SWAPS:
            value, swapped = node.inputs[0], not swapped
        elif _does_nothing(node):
            # Paged attention's matcher wants the cache's Concat right at the operator (state_management_pattern.cpp).
            value = node.inputs[0]
        else:
            return value, scales, swapped


def _does_nothing(node: Node) -> bool:
    """Whether ``node`` is an Identity, or a Convert to the type that its input has."""
    source = node.inputs[0] if node.op in SAME_ELEMENTS else None
    return source is not None and (node.op == "Identity" or source.element_type == node.outputs[0].element_type)


def _narrow(graph: Graph, value: Value | None, element_type: str) -> Value:
    """``value`` before a Convert that widened it from ``element_type``, as f16 exports with an f32 Softmax have it."""
    assert value is not None
    node = graph.producer(value)
    source = node.inputs[0] if node.op == "Convert" else None
    if source is None or source.element_type != element_type:
        return value
    return source if _WIDTHS.get(element_type, 64) < _WIDTHS.get(value.element_type, 0) else value


def _outgrows(mask: Value, scores: Value) -> bool:
    """Whether ``mask`` is longer along an axis along which the scores have one element."""
    if mask.shape is None or scores.shape is None:
        return False
    pairs = zip(reversed(mask.shape), reversed(scores.shape), strict=False)
    return any(isinstance(own, int) and own > 1 and other == 1 for own, other in pairs)
