"""Describe the effective mask of an attention block as symbolic expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from graphpass.analysis.attention.alibi import alibi_slopes
from graphpass.analysis.attention.find import Scores, read_scores
from graphpass.analysis.attention.operators import operator_heads, operator_window
from graphpass.analysis.attention.types import OPERATORS, UNAMBIGUOUS, Attention, Mask
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import quotient
from graphpass.analysis.symbolic.elements import Elements, UnknownError, aligned
from graphpass.analysis.symbolic.expressions import ONE, TRUE, ZERO, Expr, number
from graphpass.analysis.symbolic.text import expression_text
from graphpass.ir.cache import MaskPart
from graphpass.ir.graph import Node, Value
from graphpass.ir.miss import Miss
from graphpass.ir.operators import NEW_TOKENS
from graphpass.ir.values import MASKED_BELOW

#: Components of masks, in the order of reports.
MASK_PARTS: tuple[MaskPart, ...] = ("causal", "input", "lengths", "alibi", "bias")

#: Lengths of a step: rows, cached positions before it, new tokens.
BATCH, PAST, LENGTH = ex.length("batch", 1), ex.length("past"), ex.length("length", 1)
TOTAL = ex.add(PAST, LENGTH)


@dataclass(frozen=True, slots=True)
class Scope:
    """Symbolic indices of one score, in ``[batch, heads, queries, keys]``."""

    row: Expr
    head: Expr
    query: Expr
    key: Expr

    @property
    def position(self) -> Expr:
        """Return the index of the query among the keys."""
        return ex.add(ex.subtract(self.key.args[1], self.query.args[1]), self.query)


@dataclass(frozen=True, slots=True)
class AttentionMask:
    """The effective mask of one attention block, for every batch, past and length.

    Attributes:
        node: The fused operator, or the Softmax.
        scope: The indices in the expressions.
        visible: Condition under which the query attends to the key.
        bias: Number added to the score of a visible key.
        is_causal: Whether keys after the query are excluded.
        window: Number of latest positions that a query attends to, itself included; the smallest of several windows.
        chunk: Number of positions in a chunk; a query attends only to keys in its own chunk.
        is_padded: Whether an input ``[batch, keys]`` such as ``attention_mask`` excludes keys.
        has_lengths: Whether keys are limited by a length of each row.
        slopes: Slopes of ALiBi, ``[heads]``, if the bias is only ALiBi.
        residue: Conditions of ``visible`` that no other attribute describes.
        misses: Unknown parts, with node and reason.
    """

    node: Node
    scope: Scope
    visible: Expr
    bias: Expr
    is_causal: bool = False
    window: int | None = None
    chunk: int | None = None
    is_padded: bool = False
    has_lengths: bool = False
    slopes: tuple[float, ...] | None = None
    residue: tuple[Expr, ...] = ()
    misses: tuple[Miss, ...] = ()

    @property
    def parts(self) -> tuple[MaskPart, ...] | None:
        """Return the components of the mask; ``None`` if some are unknown."""
        if self.misses or not all(any(map(_is_input, ex.walk(part))) for part in self.residue):
            return None
        reads = any(_is_input(part) for part in ex.walk(*self.residue, self.bias))
        present: dict[MaskPart, bool] = {
            "causal": self.is_causal,
            "input": self.is_padded or reads,
            "lengths": self.has_lengths,
            "alibi": self.slopes is not None,
            "bias": not (
                self.slopes is not None or all(leaf is ZERO or _is_input(leaf) for leaf in _leaves(self.bias))
            ),
        }
        return tuple(part for part in MASK_PARTS if present[part])

    @property
    def counts_positions(self) -> bool:
        """Return whether running sums of ``attention_mask`` give the positions of keys."""
        return ex.uses([self.visible], "running_sum")

    @property
    def window_of_tokens(self) -> int | None:
        """Return the window if it counts tokens only by ``attention_mask``; ``None`` otherwise."""
        reads = {part.args[0] for part in ex.walk(self.visible) if _is_input(part)}
        return self.window if self.counts_positions and reads == {"attention_mask"} else None


def plain_mask(mask: AttentionMask) -> AttentionMask | Miss:
    """Return ``mask`` if it has only causal, window and padding components, or a miss."""
    others = [part for part in mask.parts or () if part in {"alibi", "lengths"}]
    inputs = [part for part in ex.walk(mask.visible, mask.bias) if _is_input(part)]
    further = sorted({part.args[0] for part in inputs if part.sort != "bool" or part.args[0] != "attention_mask"})
    if mask.misses:
        return mask.misses[0]
    if others:
        return Miss(mask.node, f"its mask has components other than causal, window and padding: {', '.join(others)}")
    if mask.bias is not ZERO:
        return Miss(mask.node, "its mask adds a bias to the scores of visible keys")
    if further:
        return Miss(mask.node, f"its mask reads input {further[0]}")
    if mask.chunk is not None:
        return Miss(mask.node, f"its mask limits attention to chunks of {mask.chunk} positions")
    if mask.residue:
        return Miss(mask.node, f"its mask hides other positions, unless {expression_text(mask.residue[0])}")
    return mask if mask.is_causal else Miss(mask.node, "its mask is not causal")


def _leaves(expr: Expr) -> Iterator[Expr]:
    """Yield the alternatives of nested ``choose`` expressions."""
    pending = [expr]
    while pending:
        leaf = pending.pop()
        if leaf.op == "choose":
            pending += leaf.args[1:]
        else:
            yield leaf


def _is_input(expr: Expr) -> bool:
    return expr.op == "read" and isinstance(expr.args[0], str)


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
    return _described(elements, node, scope, visible, bias)


def _of_operator(node: Node) -> tuple[bool, bool, tuple[int, ...]]:
    """Return whether an operator is causal, whether it has row lengths, and its window."""
    ports = OPERATORS.get(node.op)
    if ports is None:
        return False, False, ()
    has_lengths = node.present(ports.lengths) or any(value.rank == 1 for value in node.present(ports.masks))
    window = operator_window(node)
    return ports.hides_later(node), bool(has_lengths), () if window is None else (window,)


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
    from graphpass.ir.operators import INNER_CACHES

    past = node.input(INNER_CACHES[node.op][0][0])
    if past is not None:
        return ex.add(elements.shape(past)[2], queries)
    key = node.input(1)
    if key is None:
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
    for value in node.present(ports.masks):
        if value.rank == 1:
            # The key padding mask of MultiHeadAttention may hold the length of each row.
            yield None, ex.less(scope.key, _of_row(elements, value, scope))
        else:
            mask = Mask.of_operator(value)
            yield mask, _element(elements, mask, scope)


def _element(elements: Elements, mask: Mask, scope: Scope) -> Expr:
    """Return the element of a mask that is broadcast to the scores.

    Raises:
        UnknownError: The mask has more than 4 dimensions.
    """
    sizes = elements.shape(mask.value)
    own = (scope.row, scope.head, scope.query, scope.key)
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


# Added numbers that exclude keys


def hides(root: Expr) -> Expr:
    """Return the condition under which an added number is below `MASKED_BELOW`."""
    known: dict[Expr, Expr] = {}
    for expr in ex.walk(root):
        if expr.sort == "bool":
            continue
        value = expr.as_number
        if value is not None:
            known[expr] = number(bool(value < MASKED_BELOW))
        elif expr.op == "choose":
            branches = known[expr.args[1]], known[expr.args[2]]
            known[expr] = branches[0] if _is_bounded(expr) else ex.choose(expr.args[0], *branches)
        elif expr.op == "real_sum":
            known[expr] = ex.disjunction(*(known[part] for part in expr.args))
        elif expr.op == "sum":
            # Integer masks are choices multiplied by large factors.
            known[expr] = _sum_hides(expr)
        elif expr.op == "product":
            known[expr] = _product_hides(expr)
        else:
            known[expr] = ex.FALSE
    return known[root]


def _is_bounded(expr: Expr) -> bool:
    """Return whether a choice is the maximum of a number and a bound below `MASKED_BELOW`."""
    condition, value, bound = expr.args
    limit = bound.as_number
    return limit is not None and limit < MASKED_BELOW and condition is ex.at_most(bound, value)


def _sum_hides(expr: Expr) -> Expr:
    """Return the condition under which a sum of integers with a large factor excludes keys."""
    large = any(abs(factor) > -MASKED_BELOW for _, factor in expr.args)
    return ex.less(_spread(expr), number(int(MASKED_BELOW))) if large else ex.FALSE


def _spread(expr: Expr) -> Expr:
    """Return a sum with one choice as a choice between two sums."""
    choices = [atom for atom in expr.operands if atom.op == "choose"]
    if len(choices) != 1:
        return expr
    condition, *branches = choices[0].args
    return ex.choose(condition, *(ex.substitute(expr, {choices[0]: branch}) for branch in branches))


def _product_hides(expr: Expr) -> Expr:
    left, right = expr.args
    for chosen, factor in ((left, right), (right, left)):
        value = factor.as_number
        if chosen.op == "choose" and value is not None:
            hidden = [
                number(bool(branch.as_number is not None and branch.as_number * value < MASKED_BELOW))
                for branch in chosen.args[1:]
            ]
            return ex.choose(chosen.args[0], *hidden)
    return ex.FALSE


def shown(root: Expr) -> Expr:
    """Return the value of an added number at visible keys."""
    known: dict[Expr, Expr] = {}
    for expr in ex.walk(root):
        value = expr.as_number
        if expr.sort == "bool":
            known[expr] = expr
        elif value is not None:
            known[expr] = ZERO if value < MASKED_BELOW else expr
        elif expr.op == "choose":
            condition, *branches = expr.args
            hidden = [hides(branch) is TRUE for branch in branches]
            shown = [known[branch] for branch in branches]
            hidden[1] |= _is_bounded(expr)
            known[expr] = shown[1] if hidden[0] else shown[0] if hidden[1] else ex.choose(condition, *shown)
        elif expr.op in {"real_sum"}:
            known[expr] = ex.add(*(known[part] for part in expr.args))
        elif expr.op in {"sum", "product"} and (hidden_if := hides(expr)) is not ex.FALSE:
            known[expr] = ZERO if _is_only_mask(expr, hidden_if) else expr
        else:
            known[expr] = expr
    return known[root]


def _is_only_mask(expr: Expr, hides: Expr) -> bool:
    """Return whether an added number is 0 unless it excludes the key."""
    return ex.substitute(expr, {hides: ex.FALSE}) is ZERO


# Description


def _described(elements: Elements, node: Node, scope: Scope, visible: Expr, bias: Expr) -> AttentionMask:
    opaque = [part for part in ex.walk(visible, bias) if part in elements.misses]
    rest: list[Expr] = []
    is_causal, has_lengths, own = _of_operator(node)
    windows, is_padded = list(own), False
    chunk: int | None = None
    counted: dict[Expr, Expr] = {}
    by_row = (
        set()
        if not has_lengths
        else {
            part
            for part in _parts(visible)
            if any(_is_input(expr) or expr.op == "running_sum" for expr in ex.walk(part))
        }
    )
    for part in _parts(visible):
        bound = _last_key(part, scope)
        if bound is scope.position:
            is_causal = True
        elif bound is not None and (of_row := _is_of_row(bound, scope)) is not None:
            has_lengths |= of_row
            is_causal |= ex.contains([bound], scope.query)
        elif (window := _window(part, scope)) is not None:
            windows.append(window)
        elif _is_padding(part, scope):
            is_padded = True
        elif part in by_row:
            # A condition on the length of the row, such as the operator's window.
            continue
        elif (size := _chunk(part, scope)) is not None:
            chunk = size
        elif (key_counts := _counted_causal(part, scope)) is not None:
            counted[part] = key_counts
        else:
            rest.append(part)
    # Comparisons of running sums are causal if all visible keys are counted: each later key increases the sum.
    is_causal |= not set(_parts(visible)).isdisjoint(counted.values())
    return AttentionMask(
        node,
        scope,
        visible,
        bias,
        is_causal,
        min(windows, default=None),
        chunk,
        is_padded,
        has_lengths,
        alibi_slopes(unpadded(bias), scope.head, scope.key),
        (*rest, *([] if is_causal else counted)),
        tuple(dict.fromkeys(elements.misses[part] for part in opaque)),
    )


def unpadded(expr: Expr) -> Expr:
    """Return an expression for a batch without padding.

    Masks are 1, and positions continue from the past.
    """
    replaced: dict[Expr, Expr] = {}
    for part in ex.walk(expr):
        if _is_input(part) and part.sort == "bool":
            replaced[part] = TRUE
        elif _is_input(part) and part.sort == "int" and part.args[1:]:
            replaced[part] = ex.add(PAST, ex.substitute(part.args[-1], replaced))
    return ex.substitute(expr, replaced) if replaced else expr


def _parts(visible: Expr) -> Iterable[Expr]:
    return visible.args if visible.op == "and" else () if visible is TRUE else (visible,)


def _last_key(part: Expr, scope: Scope) -> Expr | None:
    """Return the bound of ``key <= bound``; ``None`` for other conditions."""
    if part.op != "not_positive":
        return None
    bound = ex.subtract(scope.key, part.args[0])
    return None if ex.contains([bound], scope.key) else bound


def _is_of_row(bound: Expr, scope: Scope) -> bool | None:
    """Return whether the index of the last key is computed from a row length.

    ``False`` if it is computed from an input of positions, ``None`` if from neither.
    """
    atoms = [atom for atom in ex.walk(bound) if atom.op in {"read", "running_sum"}]
    if not atoms or ex.contains([bound], scope.head):
        return None
    return not any(atom.op == "read" and scope.query in atom.args for atom in atoms)


def _window(part: Expr, scope: Scope) -> int | None:
    """Return the window of ``position - key < window``, in slots, or in positions without padding."""
    for form in dict.fromkeys((part, unpadded(part))):
        if form.op == "not_positive":
            excess = ex.subtract(form.args[0], ex.subtract(scope.position, scope.key)).as_number
            if isinstance(excess, int) and excess < 0:
                return 1 - excess
    return None


def _counted_causal(part: Expr, scope: Scope) -> Expr | None:
    """Return the condition under which a key is counted in ``count(key) <= count(position)``.

    ``count`` is a running sum of 0 and 1. The comparison is true for all keys up to the position, and false for later
    keys that are counted. ``None`` for other conditions.
    """
    sums = ex.polynomial(part.args[0]) if part.op == "not_positive" else {}
    atoms = {factor: monomial[0] for monomial, factor in sums.items() if len(monomial) == 1}
    if len(sums) != 2 or atoms.keys() != {1, -1} or any(atom.op != "running_sum" for atom in atoms.values()):
        return None
    # A running sum of other numbers may decrease.
    body, bound, _ = atoms[1].args
    if body.op != "choose" or set(body.args[1:]) != {ZERO, ONE}:
        return None
    if ex.substitute(atoms[1], {scope.key: scope.position}) is not atoms[-1]:
        return None
    counts = body.args[0] if body.args[1] is ONE else ex.negate(body.args[0])
    return ex.substitute(counts, {bound: scope.key})


def _is_padding(part: Expr, scope: Scope) -> bool:
    return _is_input(part) and part.args[1:] in {(scope.row, scope.key), (ZERO, scope.key)}


def _chunk(part: Expr, scope: Scope) -> int | None:
    """Return the chunk of ``key / chunk == position / chunk``, in slots or positions."""
    for form in dict.fromkeys((part, unpadded(part))):
        quotients = (expr for expr in ex.walk(form) if expr.op == "floor_quotient" and expr.args[0] is scope.key)
        for size in (part_of_key.args[1].as_number for part_of_key in quotients):
            sides = (ex.floor_divide(expr, number(size)) for expr in (scope.key, scope.position))
            if isinstance(size, int) and form is ex.equal(*sides):
                return size
    return None
