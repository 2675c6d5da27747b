"""Derive the effective mask of an attention block."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graphpass.analysis.attention.added_masks import hides, shown
from graphpass.analysis.attention.find import Scores, read_scores
from graphpass.analysis.attention.mask import AttentionMask, Scope
from graphpass.analysis.attention.mask_parts import described
from graphpass.analysis.attention.operators import operator_heads, operator_window
from graphpass.analysis.attention.types import OPERATORS, UNAMBIGUOUS, Attention, Mask
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import quotient
from graphpass.analysis.symbolic.elements import Elements, Index, UnknownError, aligned
from graphpass.analysis.symbolic.expressions import ONE, TRUE, ZERO, Expr, number
from graphpass.analysis.symbolic.step import BATCH, LENGTH, TOTAL
from graphpass.ir.graph import Node, Value
from graphpass.ir.miss import Miss
from graphpass.ir.operators import INNER_CACHES, NEW_TOKENS


def attention_mask(elements: Elements, attention: Attention) -> AttentionMask:
    """Return the effective mask of ``attention``.

    Args:
        elements: Symbolic elements of its graph, in lengths of the step.
        attention: The attention block.
    """
    graph, node = elements.graph, attention.node
    try:
        scope = _scope(elements, attention)
        terms = list(_terms(elements, attention, scope))
    except UnknownError as error:
        unknown = Miss(node, str(error))
        blank = Scope(*(ex.index(name, size) for name, size in zip("bhqk", (BATCH, ONE, LENGTH, TOTAL), strict=True)))
        return AttentionMask(node, blank, TRUE, ZERO, misses=(unknown,))
    visible, bias = TRUE, ZERO
    for mask, term in terms:
        if mask is None or mask.keeps is not None:
            kept = ex.holds(term)
            visible = ex.conjunction(visible, kept if mask is None or mask.keeps else ex.negate(kept))
            continue
        added = ex.negative(term) if mask.is_subtracted else term
        visible = ex.conjunction(visible, ex.negate(hides(added)))
        offset = shown(added)
        for scale in mask.scales:
            factor = scale.factor(graph)
            if factor is None:
                unknown = Miss(graph.producer(mask.value), f"its scale {scale.name} is computed")
                return AttentionMask(node, scope, visible, bias, misses=(unknown,))
            offset = ex.multiply(offset, number(factor))
        bias = ex.add(bias, offset)
    return described(elements, node, scope, visible, bias)


def partial_mask(elements: Elements, attention: Attention, value: Value) -> AttentionMask | Miss:
    """Return the effective mask of ``attention`` if ``value`` was its only mask.

    Args:
        elements: Symbolic elements of its graph, in lengths of the step.
        attention: The attention block.
        value: A tensor ``[batch, heads, length, sequence]`` or a condition of that shape upstream of its masks.

    Returns:
        The mask, or the reason why it is unknown or has no element for each score.
    """
    node, mask = attention.node, Mask.of_operator(value)
    try:
        scope = _scope(elements, attention)
        sizes = elements.shape(value)
        if len(sizes) != 4 or sizes[-2:] != (scope.query.args[1], scope.key.args[1]):
            return Miss(node, f"{value.name} is not [batch, heads, length, sequence]")
        term = _element(elements, mask, scope)
    except UnknownError as error:
        return Miss(node, str(error))
    if mask.keeps:
        return described(elements, node, scope, ex.holds(term), ZERO)
    return described(elements, node, scope, ex.negate(hides(term)), shown(term))


def _scope(elements: Elements, attention: Attention) -> Scope:
    """Return the symbolic indices of the scores.

    Raises:
        UnknownError: The scores do not match.
    """
    graph, node = elements.graph, attention.node
    if not attention.is_fused:
        scores = read_scores(graph, node)
        if not isinstance(scores, Scores):
            raise UnknownError(scores.reason)
        sizes = elements.shape(scores.product.outputs[0])
        queries, keys = sizes[-2:]
    elif node.op == "ScaledDotProductAttention":
        sizes, keys = elements.shape(node.source(0)), elements.shape(node.source(1))[-2]
        queries = sizes[-2]
    elif node.op in UNAMBIGUOUS:
        sizes = elements.shape(node.source(0))
        queries = sizes[1] if len(sizes) == 3 else sizes[-2]
        keys = _keys(elements, node, queries)
    else:
        return Scope(
            *(
                ex.index(name, size)
                for name, size in zip("bhqk", (BATCH, ex.length("heads", 1), LENGTH, TOTAL), strict=True)
            )
        )
    merged = len(sizes) == 3 and not attention.is_fused
    heads = quotient(sizes[0], BATCH) if merged else None
    batch = BATCH if merged else sizes[0]
    if attention.is_fused and (count := operator_heads(node).heads) is not None:
        heads = number(count)
    elif len(sizes) == 4:
        heads = sizes[1]
    sizes = (batch, heads or ex.length("heads", 1), queries, keys)
    return Scope(*(ex.index(name, size) for name, size in zip("bhqk", sizes, strict=True)))


def _keys(elements: Elements, node: Node, queries: Expr) -> Expr:
    """Return the number of keys of an operator with past inputs."""
    ports = INNER_CACHES[node.op]
    past, is_packed = node.input(ports[0][0]), len(ports) == 1
    if past is not None:
        return ex.add(elements.shape(past)[3 if is_packed else 2], queries)
    key = node.input(1)
    if key is None or is_packed:
        return queries
    sizes = elements.shape(key)
    return sizes[1] if len(sizes) == 3 else sizes[-2]


def _terms(elements: Elements, attention: Attention, scope: Scope) -> Iterator[tuple[Mask | None, Expr]]:
    """Yield each mask with its element at ``scope``, and ``None`` with the condition of attributes.

    Raises:
        UnknownError: The operator is SparseAttention.
    """
    graph, node = elements.graph, attention.node
    if not attention.is_fused:
        scores = read_scores(graph, node)
        assert isinstance(scores, Scores)
        for mask in scores.masks:
            yield mask, _element(elements, mask, scope)
        return
    if node.op == "SparseAttention":
        raise UnknownError("the block mask of SparseAttention is not analyzed")
    ports = OPERATORS[node.op]
    yield None, visible_by_attributes(node, scope, lambda value: _of_row(elements, value, scope))
    if node.op == "ScaledDotProductAttention" and ports.hides_later(node):
        # OpenVINO ignores the mask input of causal attention.
        return
    for port in ports.masks:
        value = node.input(port)
        if value is None:
            continue
        if value.rank == 1:
            # The key padding mask of MultiHeadAttention may hold the length of each row, or further numbers.
            if elements.shape(value)[0] not in {ONE, scope.row.args[1]}:
                raise UnknownError(f"its mask {value.name} does not have one length per row")
            yield None, ex.less(scope.key, _of_row(elements, value, scope))
        else:
            mask = Mask.of_operator(value)
            yield mask, _element(elements, mask, scope, by_row=port in ports.row_masks)


def _element(elements: Elements, mask: Mask, scope: Scope, *, by_row: bool = False) -> Expr:
    """Return the element of a mask that is broadcast to the scores.

    Args:
        elements: Symbolic elements of its graph.
        mask: The mask.
        scope: The index of the score.
        by_row: Whether the first axis of a mask of less than 4 axes is the batch; see `Ports.row_masks`.

    Raises:
        UnknownError: The mask has more than 4 dimensions.
    """
    sizes = elements.shape(mask.value)
    own: Index = (scope.row, scope.head, scope.query, scope.key)
    if by_row and len(sizes) < len(own):
        own = (scope.row, scope.key) if len(sizes) == 2 else (scope.row, scope.query, scope.key)
    if mask.merges_heads:
        merged = ex.add(ex.multiply(scope.row, scope.head.args[1]), scope.head)
        own = (scope.row, merged, scope.query, scope.key)
    if len(sizes) > len(own):
        raise UnknownError(f"its mask {mask.value.name} has {len(sizes)} dimensions, expected at most 4")
    start = len(own) - len(sizes)
    places = (
        place if place is scope.head and size is not ONE else aligned(place, size)
        for size, place in zip(sizes, own[start:], strict=True)
    )
    return elements.of(mask.value, tuple(places))


def visible_by_attributes(node: Node, scope: Scope, of_row: Callable[[Value], Expr]) -> Expr:
    """Return the condition of visible keys by an operator's attributes and row lengths.

    Args:
        node: The operator.
        scope: The indices in the condition.
        of_row: Returns the element of a row from an input of row lengths.

    Raises:
        UnknownError: The causal mask differs between kernels if there is a past.
    """
    ports = OPERATORS[node.op]
    position, visible = scope.position, TRUE
    is_causal = ports.hides_later(node)
    if is_causal and node.op == "ScaledDotProductAttention" and scope.position is not scope.query:
        raise UnknownError("the causal mask of ScaledDotProductAttention with a past differs between kernels")
    for value in node.present(ports.lengths):
        count = of_row(value)
        # ``seqlens_k`` of GroupQueryAttention is the number of keys minus 1: docs/ContribOperators.md of ONNX Runtime.
        count = ex.add(count, ONE) if node.op == "GroupQueryAttention" else count
        visible = ex.conjunction(visible, ex.less(scope.key, count))
        new_tokens = node.input(NEW_TOKENS) if node.op == "GroupQueryAttention" else None
        new = scope.query.args[1] if new_tokens is None else of_row(new_tokens)
        position = ex.add(ex.subtract(count, new), scope.query)
    if is_causal:
        visible = ex.conjunction(visible, ex.at_most(scope.key, position))
    window = operator_window(node)
    if window is not None:
        visible = ex.conjunction(visible, ex.less(ex.subtract(position, number(window)), scope.key))
    return visible


def _of_row(elements: Elements, value: Value, scope: Scope) -> Expr:
    sizes = elements.shape(value)
    places = [ZERO] * len(sizes)
    if sizes and sizes[0] is not ONE:
        places[0] = scope.row
    return elements.of(value, tuple(places))
