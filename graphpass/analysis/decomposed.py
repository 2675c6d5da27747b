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

_SCORE_OPS = frozenset({"Add", "Subtract", "Multiply", "Divide", "Select", "Tanh", "Concat", "Reshape"}) | SAME_ELEMENTS


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
    """

    value: Value
    keeps: bool | None = None
    is_subtracted: bool = False
    scales: tuple[Scale, ...] = ()


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
    value = _narrow(graph, output.inputs[1], query.element_type)
    for name, operand in (("query", query), ("key", key), ("value", value), ("result", output.outputs[0])):
        if operand.rank != 4:
            raise NoMatchError(f"its {name} {operand.name} has {operand.rank} dimensions, not 4")
    if product.attributes["transpose_a"] or output.attributes["transpose_a"] or output.attributes["transpose_b"]:
        raise NoMatchError("a MatMul transposes its query, its probabilities or its value")
    for mask in masks:
        if _outgrows(mask.value, product.outputs[0]):
            raise NoMatchError(f"its mask {mask.value.name} has more elements than its scores")
    is_transposed = product.attributes["transpose_b"] == swapped
    scales = [*scales, *query_scales, *key_scales]
    return Decomposed(output.outputs[0], query, key, value, is_transposed, tuple(scales), masks, guarded)


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
        elif keeps_elements(uses[0].node) or uses[0].node.op == "Dropout":
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
        if keeps_elements(node):
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
    return scores, Mask(mask, is_subtracted=subtracts, scales=scales)


def _selected_mask(graph: Graph, node: Node, is_scaled: bool) -> tuple[Value, Mask]:
    condition, kept, other = node.inputs
    assert condition is not None
    limit = _MASKED_BELOW_BEFORE_SCALE if is_scaled else _MASKED_BELOW
    for scores, fill, keeps in ((kept, other, True), (other, kept, False)):
        constant = held_constant(graph, fill)
        if scores is not None and constant is not None and (constant < limit).all():
            return scores, Mask(condition, keeps)
    raise NoMatchError(f"Select {node.name} fills its scores with something other than a large negative number")


def _operand(graph: Graph, value: Value | None, *, transposes: bool) -> tuple[Value, list[Scale], bool]:
    """``value`` without the scales (and, where ``transposes``, the swap of the last two axes) that were put on it."""
    scales: list[Scale] = []
    swapped = False
    while True:
        assert value is not None
        node = graph.producer(value)
        if node.op in {"Multiply", "Divide"} and (scale := _scale(graph, node)) is not None:
            value, factor = scale
            scales.append(factor)
        elif transposes and node.op == "Transpose" and node.attributes.get("order") == (0, 1, 3, 2):
            value, swapped = node.inputs[0], not swapped
        else:
            return value, scales, swapped


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
