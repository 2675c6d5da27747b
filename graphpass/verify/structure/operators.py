"""Symbolic definitions of reductions, products, norms, Softmax and Reshape, and the table of all operators."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import reduce

from graphpass.analysis.attention.added_masks import adds_infinity, hides, shown
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import extreme_along, is_natural
from graphpass.analysis.symbolic.elements import Element, OperatorTable, Request, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, TRUE, ZERO, Expr, number
from graphpass.analysis.symbolic.open_sizes import einsum_axes
from graphpass.analysis.symbolic.operators.reductions import product_term, reduced_axes, summed_size, unreduced
from graphpass.analysis.symbolic.places import broadcast_index, digits, index_along, regrouped
from graphpass.analysis.symbolic.table import TABLE
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.graph import Node, Value
from graphpass.ir.values import MASKED_BELOW, REALS
from graphpass.verify.structure import activations
from graphpass.verify.structure.attention import gate_sink, share_of
from graphpass.verify.structure.tensors import DefinedTensors, as_function, closed, definitions_of

# Elementwise


def _quotient(element: Element) -> Steps:
    """Return an element of Divide.

    Raises:
        UnknownError: OpenVINO's specification rounds a negative quotient down, but its CPU plugin truncates.
    """
    if element.node.attributes.get("floors") and not is_natural((yield element.broadcast(0))):
        raise UnknownError("devices round quotients of negative integers differently")
    return (yield from TABLE.elements["Divide"](element))


# Sums


def _product(element: Element, swaps: tuple[bool, bool]) -> Steps:
    """Return an element of a matrix product: a sum over the contracted axis."""
    count = summed_size(element, swaps)
    bound = index_along("k", count)
    body = yield from product_term(element, swaps, bound)
    return body if bound is ZERO else definitions_of(element).sum(body, bound)


@closed
def _matmul(element: Element) -> Steps:
    attributes = element.node.attributes
    return (yield from _product(element, (bool(attributes["transpose_a"]), bool(attributes["transpose_b"]))))


@closed
def _fused_matmul(element: Element) -> Steps:
    attributes = element.node.attributes
    if "transpose_a" not in attributes:
        raise UnknownError("transBatchA and transBatchB have no definition")
    result = yield from _product(element, (attributes["transpose_a"], attributes["transpose_b"]))
    return ex.multiply(number(float(attributes["alpha"])), result)


@closed
def _gemm(element: Element) -> Steps:
    attributes = native_attributes(element.node)
    result = yield from _product(element, (bool(attributes.get("transA", 0)), bool(attributes.get("transB", 0))))
    result = ex.multiply(number(float(attributes.get("alpha", 1.0))), result)
    if element.node.input(2) is None:
        return result
    bias = yield element.broadcast(2)
    return ex.add(result, ex.multiply(number(float(attributes.get("beta", 1.0))), bias))


def _along_axes(element: Element) -> Generator[Request, Expr, tuple[Expr, list[Expr]]]:
    """Return an element of a reduction's operand, and the indices along its axes."""
    sizes = element.shape(0)
    axes = yield from reduced_axes(element)
    places = {axis: index_along(f"k{axis}", sizes[axis]) for axis in axes}
    body = yield element.node.source(), unreduced(element, places)
    return body, [place for place in places.values() if place is not ZERO]


def _reduced(element: Element, mean: bool, squares: bool) -> Steps:
    body, bounds = yield from _along_axes(element)
    body = ex.multiply(body, body) if squares else body
    if not bounds:
        return body
    result = definitions_of(element).sum(body, *bounds)
    return ex.divide(result, reduce(ex.multiply, (bound.args[1] for bound in bounds))) if mean else result


def _reduction(mean: bool = False, squares: bool = False) -> Rule:
    define = closed(lambda element: _reduced(element, mean, squares))
    exact = TABLE.elements["ReduceSum"]

    def rule(element: Element) -> Steps:
        if element.value.element_type in REALS:
            return (yield from define(element))
        if mean:
            raise UnknownError("a mean of integers is rounded")
        return (yield from exact(element))

    return rule


def _extreme(op: str) -> Rule:
    """Return the rule of a maximum or minimum along axes.

    Large axes, and axes of unknown size, are bound indices of a definition.
    """
    exact = TABLE.elements[op]

    @closed
    def defined(element: Element) -> Steps:
        body, bounds = yield from _along_axes(element)
        if not bounds:
            return body
        definitions = definitions_of(element)
        body = definitions.algebra.normal(body)
        for bound in bounds if body.sort == "int" else ():
            end = extreme_along(body, bound, largest=op == "ReduceMax")
            body, bounds = (body, bounds) if end is None else (end, [other for other in bounds if other is not bound])
        if not bounds:
            return body
        result = definitions.abstract(op, (), (body,), bounds)
        return ex.read(result.args[0], result.args[1:], body.sort)

    def rule(element: Element) -> Steps:
        try:
            return (yield from exact(element))
        except UnknownError:
            return (yield from defined(element))

    return rule


@closed
def _real_cum_sum(element: Element) -> Steps:
    """Return an element of a CumSum as a masked sum.

    Raises:
        UnknownError: The axis is computed.
    """
    node, attributes = element.node, element.node.attributes
    axis = (yield node.source(1), (ZERO,) * (node.source(1).rank or 0)).as_number
    if not isinstance(axis, int):
        raise UnknownError("the axis is computed")
    axis %= len(element.index)
    own, size = element.index[axis], element.own_shape[axis]
    bound = index_along("k", size)
    body = yield node.source(), element.index_with(axis, bound)
    first, last = (own, bound) if attributes.get("reverse") else (bound, own)
    counts = ex.less(first, last) if attributes.get("exclusive") else ex.at_most(first, last)
    body = ex.choose(counts, body, ZERO)
    return body if bound is ZERO else definitions_of(element).sum(body, bound)


def _cum_sum(element: Element) -> Steps:
    is_real = element.value.element_type in REALS
    return (yield from (_real_cum_sum if is_real else TABLE.elements["CumSum"])(element))


@closed
def _einsum(element: Element) -> Steps:
    """Return a sum of products over all labels that do not occur in the result."""
    node = element.node
    operands, result = einsum_axes(node)
    shapes = [element.shape(port) for port in range(len(operands))]
    places = dict(zip(result, element.index, strict=True))
    bounds = []
    for operand, shape in zip(operands, shapes, strict=True):
        for label, size in zip(operand, shape, strict=True):
            if label not in places and size is not ONE:
                bounds.append(ex.index(f"k{label}", size))
                places[label] = bounds[-1]
    factors = []
    for port, (operand, shape) in enumerate(zip(operands, shapes, strict=True)):
        own = broadcast_index((places.get(label, ZERO) for label in operand), shape)
        factors.append((yield node.source(port), own))
    body = reduce(ex.multiply, factors)
    return definitions_of(element).sum(body, *bounds) if bounds else body


# Norms


def _moment(element: Element, operand: Expr, bound: Expr) -> Expr:
    """Return the mean of ``operand`` over the index ``bound``."""
    return ex.divide(definitions_of(element).sum(operand, bound), bound.args[1])


def _inverse_root(element: Element, mean: Expr, epsilon: float) -> Expr:
    return definitions_of(element).algebra.power(ex.add(mean, number(float(epsilon))), -0.5)


def _normalized(element: Element, sources: Sequence[Value], epsilon: float, *, centers: bool) -> Steps:
    """Return the sum of ``sources`` normalized along the last axis; ``centers`` subtracts the mean."""
    sizes = element.elements.shape(sources[0])
    bound = ex.index("k", sizes[-1])

    def total(place: Expr) -> Steps:
        terms = []
        for value in sources:
            index = (*element.index[:-1], place)[len(sizes) - len(element.elements.shape(value)) :]
            terms.append((yield value, index))
        return reduce(ex.add, terms)

    along = yield from total(bound)
    own = yield from total(element.index[-1])
    algebra = definitions_of(element).algebra
    if centers:
        mean = algebra.normal(_moment(element, along, bound))
        along, own = ex.subtract(along, mean), ex.subtract(own, mean)
    return ex.multiply(own, _inverse_root(element, _moment(element, ex.multiply(along, along), bound), epsilon))


def _last_axis(element: Element) -> None:
    rank = len(element.shape(0))
    if int(native_attributes(element.node).get("axis", -1)) % rank != rank - 1:
        raise UnknownError("normalization covers several axes")


def _weight(element: Element, port: int) -> Steps:
    value = element.node.source(port)
    sizes = element.elements.shape(value)
    return (yield value, broadcast_index(element.index[len(element.index) - len(sizes) :], sizes))


@closed
def _rms_norm(element: Element) -> Steps:
    """Return an element of RMSNormalization, SimplifiedLayerNormalization or OpenVINO's internal RMS."""
    _last_axis(element)
    result = yield from _normalized(element, (element.node.source(),), _epsilon(element), centers=False)
    return ex.multiply(result, (yield from _weight(element, 1)))


@closed
def _layer_norm(element: Element) -> Steps:
    _last_axis(element)
    if element.value.port:
        raise UnknownError("the outputs for mean and inverse deviation have no definition")
    result = yield from _normalized(element, (element.node.source(),), _epsilon(element), centers=True)
    result = ex.multiply(result, (yield from _weight(element, 1)))
    return result if element.node.input(2) is None else ex.add(result, (yield from _weight(element, 2)))


def _epsilon(element: Element) -> float:
    return float(native_attributes(element.node).get("epsilon", 1e-5))


def _skip_norm(centers: bool) -> Rule:
    """Return the rule of SkipLayerNormalization, with outputs 0 (norm) and 3 (sum of the inputs)."""

    @closed
    def rule(element: Element) -> Steps:
        node = element.node
        bias = 4 if centers else 3
        sources = (0, 1, *((bias,) if node.input(bias) is not None else ()))
        if element.value.port == 3:
            total = yield element.broadcast(sources[0])
            for port in sources[1:]:
                total = ex.add(total, (yield element.broadcast(port)))
            return total
        if element.value.port:
            raise UnknownError("the outputs for mean and inverse deviation have no definition")
        epsilon = native_attributes(node).get("epsilon", 1e-12)
        result_of_sum = [value for value in node.outputs if value.port == 3]
        summed = result_of_sum or list(map(node.source, sources))
        result = yield from _normalized(element, summed, float(epsilon), centers=centers)
        result = ex.multiply(result, (yield from _weight(element, 2)))
        return ex.add(result, (yield from _weight(element, 3))) if centers and node.input(3) is not None else result

    return rule


@closed
def _mvn(element: Element) -> Steps:
    attributes = native_attributes(element.node)
    axes = yield from element.axes()
    rank = len(element.index)
    if [axis % rank for axis in axes] != [rank - 1] or not attributes.get("normalize_variance", True):
        raise UnknownError("expected normalization of mean and variance along the last axis")
    if str(attributes.get("eps_mode", "inside_sqrt")).lower() != "inside_sqrt":
        raise UnknownError("epsilon is added outside the square root")
    return (yield from _normalized(element, (element.node.source(),), float(attributes["eps"]), centers=True))


# Softmax


@closed
def _softmax(element: Element) -> Steps:
    if "flattens" in element.node.attributes:
        raise UnknownError("it covers several axes, as Softmax of opsets before 13")
    axis = element.node.attributes.get("axis", -1) % len(element.index)
    along = element.index[axis]
    body = yield element.node.source(), element.index
    if along is ZERO:
        return ex.add(ONE, ex.multiply(ZERO, body))
    definitions, tensors = definitions_of(element), element.elements
    assert isinstance(tensors, DefinedTensors)
    body = definitions.algebra.normal(body)
    visible, score = split_mask(body)
    if adds_infinity(body) and element.node.index not in tensors.guarded:
        tensors.hide_by_infinity(visible, element.index[axis - 1], along)
    sink = yield from gate_sink(element)
    return share_of(definitions, visible, score, along, sink)


def split_mask(body: Expr) -> tuple[Expr, Expr]:
    """Return the condition under which a score is visible, and the score without mask."""
    body = _without_floor(body)
    terms = body.args if body.op == "real_sum" else (body,)
    visible, kept = TRUE, []
    for term in terms:
        if term.op == "choose":
            condition, then, otherwise = term.args
            low = [_is_masked(branch) for branch in (then, otherwise)]
            if any(low) and not all(low):
                visible = ex.conjunction(visible, ex.negate(condition) if low[0] else condition)
                kept.append(otherwise if low[0] else then)
                continue
        if ex.uses([term], "choose"):
            visible = ex.conjunction(visible, ex.negate(hides(term)))
            term = shown(term)
        kept.append(term)
    again = reduce(ex.add, kept)
    if again is not body and any(term.op == "choose" for term in kept):
        further, again = split_mask(again)
        visible = ex.conjunction(visible, further)
    return visible, again


def _without_floor(score: Expr) -> Expr:
    """Return the score of ``maximum(score, lowest)``; a masked score remains masked without this floor."""
    while score.op == "choose" and score.args[0].op == "at_most":
        condition, then, otherwise = score.args
        # Only this order of operands is a maximum; a minimum with the floor would mask every key.
        if condition.args != (otherwise, then) or _is_masked(then) == _is_masked(otherwise):
            break
        score = otherwise if _is_masked(then) else then
    return score


def _is_masked(branch: Expr) -> bool:
    value = branch.as_number
    return value is not None and value < MASKED_BELOW


# Moves


def _reshape(element: Element) -> Steps:
    """Return an element of a Reshape or Flatten.

    The index of the operand is split by sizes where possible, otherwise by quotients and remainders.
    """
    targets = element.shape(0)
    result, places, flat = regrouped(element.index, element.own_shape, targets)
    flat = definitions_of(element).algebra.normal(flat)
    while places:
        place = places.pop()
        if not places:
            result[place] = flat
            break
        flat, result[place] = digits(flat, targets[place])
    return (yield element.node.source(), tuple(result))


# Others


def _identity_of(element: Element) -> Steps:
    if element.value.port:
        raise UnknownError("the mask output has no definition")
    if element.node.input(2) is not None and (yield element.node.source(2), ()) is not ex.FALSE:
        raise UnknownError("training_mode has no definition")
    return (yield element.node.source(), element.index)


RULES: dict[str, Rule] = {
    **TABLE.elements,
    "CumSum": _cum_sum,
    "Divide": _quotient,
    "Dropout": _identity_of,
    "Einsum": _einsum,
    "Flatten": _reshape,
    "Gemm": _gemm,
    "FusedMatMul": _fused_matmul,
    "LayerNormalization": _layer_norm,
    "MVN": _mvn,
    "MatMul": _matmul,
    "RMS": _rms_norm,
    "RMSNormalization": _rms_norm,
    "ReduceMax": _extreme("ReduceMax"),
    "ReduceMean": _reduction(mean=True),
    "ReduceMin": _extreme("ReduceMin"),
    "ReduceSum": _reduction(),
    "ReduceSumSquare": _reduction(squares=True),
    "Reshape": _reshape,
    "SimplifiedLayerNormalization": _rms_norm,
    "SkipLayerNormalization": _skip_norm(centers=True),
    "SkipSimplifiedLayerNormalization": _skip_norm(centers=False),
    "Softmax": _softmax,
}


#: Attributes that the definitions of fused operators read, or that change no defined result.
_READ: dict[str, frozenset[str]] = {
    "Attention": frozenset(
        {"is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap", "softmax_precision"}
    ),
    "CausalConvWithState": frozenset({"activation", "channels_last", "dilation", "ndim", "state_window"}),
    "GatherBlockQuantized": frozenset({"bits", "block_size", "gather_axis", "quantize_axis"}),
    "GroupQueryAttention": frozenset(
        {"causal", "do_rotary", "k_norm_epsilon", "k_quant_type", "kv_cache_bit_width", "kv_num_heads"}
        | {"local_window_size", "num_heads", "q_norm_epsilon", "qk_norm_epsilon", "qk_output", "rotary_interleaved"}
        | {"scale", "smooth_softmax", "softcap", "v_quant_type"}
    ),
    "LinearAttention": frozenset({"chunk_size", "kv_num_heads", "q_num_heads", "scale", "state_window", "update_rule"}),
    "MatMulNBits": frozenset({"K", "N", "accuracy_level", "bits", "block_size"}),
    "MoE": frozenset(
        {"activation_alpha", "activation_beta", "activation_type", "k", "normalize_routing_weights", "swiglu_fusion"}
        | {"swiglu_limit", "use_sparse_mixer"}
    ),
    "MultiHeadAttention": frozenset({"mask_filter_value", "num_heads", "scale", "unidirectional"}),
    "QMoE": frozenset(
        {"activation_alpha", "activation_beta", "activation_type", "block_size", "expert_weight_bits"}
        | {"fc1_expert_weight_bits", "fc2_expert_weight_bits", "fc3_expert_weight_bits", "k"}
        | {"normalize_routing_weights", "quant_type", "swiglu_fusion", "swiglu_limit", "use_sparse_mixer"}
        | {"weights_prepacked"}
    ),
    "RotaryEmbedding": frozenset({"interleaved", "num_heads", "rotary_embedding_dim", "scale"}),
}


#: Attributes that kernels compare with 1.
_FLAGS = frozenset(
    {"channels_last", "do_rotary", "interleaved", "normalize_routing_weights", "rotary_interleaved", "unidirectional"}
)


def _refuse_attributes(node: Node) -> None:
    """Check that all attributes have a definition.

    Raises:
        UnknownError: An attribute has none, such as one of a later version of the operator.
    """
    attributes = native_attributes(node)
    unread = sorted(attributes.keys() - _READ[node.op])
    if unread:
        raise UnknownError(f"attribute {unread[0]} has no definition")
    if any(attributes.get(name, 0) not in {0, 1} for name in _FLAGS):
        raise UnknownError("flags are 0 or 1")
    if attributes.get("local_window_size") == 0:
        raise UnknownError("local_window_size = 0 has no definition")
    if attributes.get("mask_filter_value", MASKED_BELOW) > MASKED_BELOW:
        raise UnknownError("mask_filter_value does not mask")


def _guarded(rule: Rule) -> Rule:
    """Return ``rule`` with a fallback: an uninterpreted function of the operands."""

    def run(element: Element) -> Steps:
        try:
            if element.node.op in _READ:
                _refuse_attributes(element.node)
            return (yield from rule(element))
        except UnknownError as error:
            return (yield from as_function(element, str(error)))

    return run


def table() -> OperatorTable:
    """Return the symbolic definitions of all operators."""
    from graphpass.verify.structure import (
        attention,
        block_weights,
        branches,
        convolutions,
        experts,
        quantizers,
        recurrences,
        selection,
    )

    parts = (activations, attention, block_weights, branches, convolutions, experts, quantizers, recurrences, selection)
    tables = (RULES, *(part.RULES for part in parts))
    rules = {op: _guarded(rule) for table in tables for op, rule in table.items()}
    sized = (attention, block_weights, branches, experts, selection)
    first = {op: size for sizes in (TABLE.sizes, *(part.SIZES for part in sized)) for op, size in sizes.items()}
    return OperatorTable(rules, first, {**attention.STATES, **selection.FURTHER_SIZES})
