"""Meaning of operators that compute with weights and activations, for the table of elements."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import reduce

from graphpass.analysis.symbolic import expressions as ex, open_sizes, operators
from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.elements import Element, Elements, OperatorTable, Rule, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, TRUE, ZERO, Expr, number
from graphpass.analysis.symbolic.folding import fold_cuts
from graphpass.analysis.symbolic.operators import sigmoid
from graphpass.analysis.symbolic.places import digits, regrouped
from graphpass.dialects.signature import native_attributes
from graphpass.ir.axes import NO_END
from graphpass.ir.graph import Node
from graphpass.ir.values import MASKED_BELOW, REALS
from graphpass.verify.structure.tensors import Steps, as_function, closed, definitions_of

# Activations


def _swish(operand: Expr, beta: Expr = ONE) -> Expr:
    return ex.multiply(operand, sigmoid(ex.multiply(beta, operand)))


def _gelu(operand: Expr, approximate: bool) -> Expr:
    if not approximate:
        inner = ex.apply("erf", (ex.multiply(operand, number(math.sqrt(0.5))),))
    else:
        cube = ex.multiply(operand, ex.multiply(operand, operand))
        inner = ex.apply(
            "tanh", (ex.multiply(number(math.sqrt(2 / math.pi)), ex.add(operand, ex.multiply(number(0.044715), cube))),)
        )
    return ex.multiply(number(0.5), ex.multiply(operand, ex.add(ONE, inner)))


def _of_gelu(element: Element) -> Steps:
    operand = yield element.broadcast(0)
    given = native_attributes(element.node)
    mode = str(given.get("approximation_mode", given.get("approximate", "none"))).lower()
    if mode not in {"erf", "none", "tanh"}:
        raise UnknownError(f"its mode {mode} is not known")
    return _gelu(operand, mode == "tanh")


def _quick_gelu(element: Element) -> Steps:
    operand = yield element.broadcast(0)
    return _swish(operand, number(float(native_attributes(element.node).get("alpha", 1.702))))


def _of_swish(element: Element) -> Steps:
    operand = yield element.broadcast(0)
    if element.node.input(1) is None:
        alpha = native_attributes(element.node).get("alpha", 1.0)
        return _swish(operand, number(float(alpha)))
    return _swish(operand, (yield element.node.source(1), (ZERO,) * (element.node.source(1).rank or 0)))


# Sums


def _product(element: Element, swaps: tuple[bool, bool]) -> Steps:
    """Sum products of rows of the first operand and columns of the second."""
    node, own = element.node, element.index
    sizes = element.shape(0), element.shape(1)
    if min(map(len, sizes)) < 2:
        raise UnknownError("it multiplies a vector")
    count = sizes[0][-2 if swaps[0] else -1]
    bound = ZERO if count is ONE else ex.index("k", count)
    row, column = own[-2:]
    ends = (bound, row) if swaps[0] else (row, bound), (column, bound) if swaps[1] else (bound, column)
    factors = []
    for port in (0, 1):
        batch = sizes[port][:-2]
        start = len(own) - 2 - len(batch)
        if start < 0:
            raise UnknownError("an operand has more axes than the result")
        leading = tuple(ZERO if size is ONE else one for size, one in zip(batch, own[start:-2], strict=True))
        factors.append((yield node.source(port), (*leading, *ends[port])))
    body = ex.multiply(*factors)
    return body if bound is ZERO else definitions_of(element).sum(body, bound)


@closed
def _matmul(element: Element) -> Steps:
    given = element.node.attributes
    return (yield from _product(element, (bool(given["transpose_a"]), bool(given["transpose_b"]))))


@closed
def _gemm(element: Element) -> Steps:
    given = native_attributes(element.node)
    found = yield from _product(element, (bool(given.get("transA", 0)), bool(given.get("transB", 0))))
    found = ex.multiply(number(float(given.get("alpha", 1.0))), found)
    if element.node.input(2) is None:
        return found
    bias = yield element.broadcast(2)
    return ex.add(found, ex.multiply(number(float(given.get("beta", 1.0))), bias))


def _reduced(element: Element, mean: bool, squares: bool) -> Steps:
    node, sizes = element.node, element.shape(0)
    has_axes = "axes" in node.attributes or node.input(1) is not None
    given = (yield from element.axes()) if has_axes else range(len(sizes))
    axes = {axis % len(sizes) for axis in given}
    keeps = len(element.index) == len(sizes)
    kept = iter(element.index)
    places, bounds, total = [], [], ONE
    for axis, size in enumerate(sizes):
        own = next(kept) if keeps or axis not in axes else ZERO
        if axis not in axes:
            places.append(own)
        elif size is ONE:
            places.append(ZERO)
        else:
            bounds.append(ex.index(f"k{axis}", size))
            places.append(bounds[-1])
            total = ex.multiply(total, size)
    body = yield node.source(), tuple(places)
    body = ex.multiply(body, body) if squares else body
    if not bounds:
        return body
    found = definitions_of(element).sum(body, *bounds)
    return ex.divide(found, total) if mean else found


def _reduction(mean: bool = False, squares: bool = False) -> Rule:
    define = closed(lambda element: _reduced(element, mean, squares))
    exact = operators.RULES["ReduceSum"]

    def rule(element: Element) -> Steps:
        if element.value.element_type in REALS or mean:
            return (yield from define(element))
        return (yield from exact(element))

    return rule


# Norms


def _moment(element: Element, operand: Expr, bound: Expr) -> Expr:
    """Return the mean along ``bound``."""
    return ex.divide(definitions_of(element).sum(operand, bound), bound.args[1])


def _inverse_root(element: Element, mean: Expr, epsilon: float) -> Expr:
    return definitions_of(element).algebra.power(ex.add(mean, number(float(epsilon))), -0.5)


def _normalized(element: Element, sources: tuple[int, ...], epsilon: float, *, centers: bool) -> Steps:
    """Norm the sum of inputs along the last axis."""
    sizes = element.shape(sources[0])
    bound = ex.index("k", sizes[-1])

    def total(place: Expr) -> Steps:
        terms = []
        for port in sources:
            value = element.node.source(port)
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
        raise UnknownError("it norms along several axes")


def _weight(element: Element, port: int) -> Steps:
    value = element.node.source(port)
    rank = len(element.elements.shape(value))
    sizes = element.elements.shape(value)
    places = element.index[len(element.index) - rank :]
    return (yield value, tuple(ZERO if size is ONE else place for size, place in zip(sizes, places, strict=True)))


@closed
def _rms_norm(element: Element) -> Steps:
    """RMSNormalization of ONNX, SimplifiedLayerNormalization, and OpenVINO's internal RMS."""
    _last_axis(element)
    found = yield from _normalized(element, (0,), _epsilon(element), centers=False)
    return ex.multiply(found, (yield from _weight(element, 1)))


@closed
def _layer_norm(element: Element) -> Steps:
    _last_axis(element)
    if element.value.port:
        raise UnknownError("its mean is read")
    found = yield from _normalized(element, (0,), _epsilon(element), centers=True)
    found = ex.multiply(found, (yield from _weight(element, 1)))
    return found if element.node.input(2) is None else ex.add(found, (yield from _weight(element, 2)))


def _epsilon(element: Element) -> float:
    return float(native_attributes(element.node).get("epsilon", 1e-5))


def _skip_norm(centers: bool) -> Rule:
    """SkipLayerNormalization: outputs are the norm, two that are not computed, and the sum."""

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
            raise UnknownError("its mean is read")
        given = native_attributes(node).get("epsilon", 1e-12 if centers else 1e-6)
        found = yield from _normalized(element, sources, float(given), centers=centers)
        found = ex.multiply(found, (yield from _weight(element, 2)))
        return ex.add(found, (yield from _weight(element, 3))) if centers and node.input(3) is not None else found

    return rule


@closed
def _mvn(element: Element) -> Steps:
    given = native_attributes(element.node)
    axes = yield from element.axes()
    rank = len(element.index)
    if [axis % rank for axis in axes] != [rank - 1] or not given.get("normalize_variance", True):
        raise UnknownError("it norms along several axes")
    if str(given.get("eps_mode", "inside_sqrt")).lower() != "inside_sqrt":
        raise UnknownError("its epsilon lies outside of the root")
    return (yield from _normalized(element, (0,), float(given["eps"]), centers=True))


# Softmax


@closed
def _softmax(element: Element) -> Steps:
    axis = element.node.attributes.get("axis", -1) % len(element.index)
    along = element.index[axis]
    body = yield element.node.source(), element.index
    if along is ZERO:
        return ONE
    visible, score = split_mask(definitions_of(element).algebra.normal(body))
    return definitions_of(element).softmax(visible, score, along)


def split_mask(body: Expr) -> tuple[Expr, Expr]:
    """Return whether a score is not masked, and its value if it is not."""
    from graphpass.analysis.attention.mask import hides, shown

    body = _without_floor(body)
    terms = body.args if body.op == "real_sum" else (body,)
    visible, kept = TRUE, []
    for term in terms:
        if term.op == "choose":
            condition, one, other = term.args
            low = [_is_masked(branch) for branch in (one, other)]
            if any(low) and not all(low):
                visible = ex.conjunction(visible, ex.negate(condition) if low[0] else condition)
                kept.append(other if low[0] else one)
                continue
        if any(part.op == "choose" for part in ex.walk(term)):
            visible = ex.conjunction(visible, ex.negate(hides(term)))
            term = shown(term)
        kept.append(term)
    again = reduce(ex.add, kept)
    if again is not body and any(term.op == "choose" for term in kept):
        further, again = split_mask(again)
        visible = ex.conjunction(visible, further)
    return visible, again


def _without_floor(score: Expr) -> Expr:
    """Return a score without the lowest number that it is raised to: both are masked."""
    while score.op == "choose" and score.args[0].op == "at_most":
        condition, one, other = score.args
        # `ex.maximum` compares so; the lesser of both would mask every key.
        if condition.args != (other, one) or _is_masked(one) == _is_masked(other):
            break
        score = other if _is_masked(one) else one
    return score


def _is_masked(branch: Expr) -> bool:
    value = branch.as_number
    return value is not None and value < MASKED_BELOW


# Moves


def _reshape(element: Element) -> Steps:
    """Regroup axes; places that no range divides stay quotients and remainders."""
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
        raise UnknownError("its mask is read")
    return (yield element.node.source(), element.index)


RULES: dict[str, Rule] = {
    **operators.RULES,
    "Dropout": _identity_of,
    "Flatten": _reshape,
    "FastGelu": lambda element: _fast_gelu(element),
    "Gelu": _of_gelu,
    "Gemm": _gemm,
    "LayerNormalization": _layer_norm,
    "MVN": _mvn,
    "MatMul": _matmul,
    "QuickGelu": _quick_gelu,
    "RMS": _rms_norm,
    "RMSNormalization": _rms_norm,
    "ReduceMean": _reduction(mean=True),
    "ReduceSum": _reduction(),
    "ReduceSumSquare": _reduction(squares=True),
    "Reshape": _reshape,
    "SimplifiedLayerNormalization": _rms_norm,
    "SkipLayerNormalization": _skip_norm(centers=True),
    "SkipSimplifiedLayerNormalization": _skip_norm(centers=False),
    "Softmax": _softmax,
    "Swish": _of_swish,
}


def _fast_gelu(element: Element) -> Steps:
    operand = yield element.broadcast(0)
    if element.node.input(1) is not None:
        operand = ex.add(operand, (yield element.broadcast(1)))
    return _gelu(operand, approximate=True)


def _gemm_size(elements: Elements, node: Node, axis: int) -> Expr:
    given = native_attributes(node)
    swapped = bool(given.get("transB" if axis else "transA", 0))
    return elements.shape(node.source(axis))[axis ^ swapped]


def _concat_size(elements: Elements, node: Node, axis: int) -> Expr:
    if axis != node.attributes["axis"] % (node.outputs[0].rank or 1):
        return elements.shape(node.source())[axis]
    return reduce(ex.add, (elements.shape(value)[axis] for value in node.inputs if value is not None))


def _convolution_size(elements: Elements, node: Node, axis: int) -> Expr | None:
    """Return the number of rows, or of places of a kernel that moves by 1."""
    data, weight, given = elements.shape(node.source(0)), elements.shape(node.source(1)), native_attributes(node)
    if axis < 2:
        return data[0] if axis == 0 else None
    place, count = axis - 2, len(data) - 2
    auto = given.get("auto_pad", "explicit")
    padding = str(auto.decode() if isinstance(auto, bytes) else auto).lower()
    if padding not in {"explicit", "notset", "valid"}:
        return None
    strides, dilations = (list(given.get(name) or [1] * count) for name in ("strides", "dilations"))
    pads = list(given.get("pads") or [*given.get("pads_begin", [0] * count), *given.get("pads_end", [0] * count)])
    padded = 0 if padding == "valid" else int(pads[place]) + int(pads[count + place])
    reach = ex.multiply(number(int(dilations[place])), ex.subtract(weight[axis - len(data)], ONE))
    return ex.subtract(ex.add(data[axis], number(padded)), reach) if int(strides[place]) == 1 else None


def _slice_size(elements: Elements, node: Node, axis: int) -> Expr | None:
    """Return the size of an axis that is reversed, or cut to its first elements."""
    size, cuts = elements.shape(node.source())[axis], fold_cuts(elements.graph, node)
    found = {cut.axis % (node.outputs[0].rank or 1): (place, cut.step) for place, cut in enumerate(cuts)}
    if axis not in found:
        return size if found else None
    place, step = found[axis]
    start, end = (elements.of(node.source(port), (number(place),)) for port in (1, 2))
    if step == -1 and isinstance(end.as_number, int) and end.as_number <= -NO_END:
        is_last = isinstance(start.as_number, int) and (start.as_number == -1 or start.as_number >= NO_END)
        return size if is_last else None
    is_within = is_natural(end) and is_natural(ex.subtract(size, end))
    return end if step == 1 and start is ZERO and is_within else None


SIZES = {
    **dict.fromkeys(("Conv", "Convolution", "GroupConvolution"), _convolution_size),
    "Concat": _concat_size,
    "Gemm": _gemm_size,
    "Slice": _slice_size,
}


def _guarded(rule: Rule) -> Rule:
    """Return ``rule``, or a function of the operands if it knows none."""

    def run(element: Element) -> Steps:
        try:
            return (yield from rule(element))
        except UnknownError as error:
            return (yield from as_function(element, str(error)))

    return run


def table() -> OperatorTable:
    """Return the table of all operators."""
    from graphpass.verify.structure import attention

    rules = {op: _guarded(rule) for op, rule in (RULES | attention.RULES).items()}
    return OperatorTable(rules, open_sizes.RULES | attention.SIZES | SIZES)


__all__ = ["RULES", "replace", "split_mask", "table"]
