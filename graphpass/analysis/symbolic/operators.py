"""The table of operators: one element of the result from elements of the operands.

Sources: the operator specifications of ONNX and of OpenVINO's opset16. Names are those of the neutral `Graph`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import divided, is_natural
from graphpass.analysis.symbolic.elements import Element, Index, Rule, Steps, UnknownError, chosen
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.places import flat_place, index_of, regroup, solved
from graphpass.analysis.symbolic.rotary import rotary
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.axes import NO_END
from graphpass.ir.graph import Value
from graphpass.ir.operators import ANDS, CASTS, NOTS, ORS, SLICES, SPLITS
from graphpass.ir.values import HALVES, INTEGERS, REALS

#: Elements of the largest axis that a sum or product is written out along.
_MOST_TERMS = 64


# Element by element


def _elementwise(function: Callable[..., Expr]) -> Rule:
    def rule(element: Element) -> Steps:
        operands = []
        for port in range(len(element.node.inputs)):
            operands.append((yield element.broadcast(port)))
        result = function(*operands)
        return ex.round_to(element.value.element_type, result) if element.value.element_type in HALVES else result

    return rule


def _folded(function: Callable[[Expr, Expr], Expr]) -> Rule:
    return _elementwise(lambda *operands: reduce(function, operands))


def _function(name: str, compute: Callable[[float], float]) -> Rule:
    def of(operand: Expr) -> Expr:
        value = operand.as_number
        if operand.sort == "int" and name in {"ceiling", "floor"}:
            return operand
        return ex.apply(name, (operand,)) if value is None else number(compute(float(value)))

    return _elementwise(of)


def _same(element: Element) -> Steps:
    found = yield element.node.source(), element.index
    source, result = element.node.source().element_type, element.value.element_type
    if result == "boolean":
        return ex.holds(found)
    if found.sort == "bool":
        return ex.choose(found, ONE, ZERO)
    if source in REALS and result in INTEGERS and found.sort == "real":
        value = found.as_number
        return ex.apply("truncate", (found,), "int") if value is None else number(math.trunc(value))
    return ex.round_to(result, found) if result in HALVES and source != result else found


def _divide(element: Element) -> Steps:
    one, other = (yield element.broadcast(0)), (yield element.broadcast(1))
    if element.value.element_type in REALS:
        return ex.divide(one, other)
    # OpenVINO says whether it rounds down, ONNX does not round negative quotients down.
    floors = element.node.attributes.get("floors", False)
    if not is_natural(ex.subtract(other, ONE)) or not (floors or is_natural(one)):
        raise UnknownError("it divides integers that may be negative")
    quotient = divided(one, other)
    return quotient[0] if quotient is not None else ex.floor_divide(one, other)


def _modulo(element: Element) -> Steps:
    one, other = (yield element.broadcast(0)), (yield element.broadcast(1))
    if element.value.element_type in REALS or not (is_natural(one) and is_natural(ex.subtract(other, ONE))):
        raise UnknownError("dialects give remainders of negative numbers differently")
    quotient = divided(one, other)
    return quotient[1] if quotient is not None else ex.modulo(one, other)


def _power(one: Expr, other: Expr) -> Expr:
    base, exponent = one.as_number, other.as_number
    if base is not None and exponent is not None:
        return number(float(base) ** float(exponent))
    return ex.multiply(one, one) if exponent == 2 else ex.apply("power", (one, other))


def _logical(function: Callable[..., Expr]) -> Rule:
    return _elementwise(lambda *operands: function(*map(ex.holds, operands)))


def _bitwise(function: Callable[..., Expr]) -> Rule:
    def rule(*operands: Expr) -> Expr:
        if all(operand.sort == "bool" for operand in operands):
            return function(*operands)
        raise UnknownError("it joins bits of integers")

    return _elementwise(rule)


def _absolute(operand: Expr) -> Expr:
    return ex.maximum(operand, ex.negative(operand))


def sigmoid(operand: Expr) -> Expr:
    """Return ``1 / (1 + exp(-operand))``."""
    return ex.divide(ONE, ex.add(ONE, ex.apply("exp", (ex.negative(operand),))))


def _softplus(operand: Expr) -> Expr:
    return ex.apply("log", (ex.add(ONE, ex.apply("exp", (operand,))),))


def _clip(element: Element) -> Steps:
    found = yield element.broadcast(0)
    given = native_attributes(element.node)
    for port, name, function in ((1, "min", ex.maximum), (2, "max", ex.minimum)):
        if element.node.input(port) is not None:
            found = function(found, (yield element.node.source(port), ()))
        elif name in given:
            found = function(found, number(float(given[name])))
    return found


# Moves


def _reshape(element: Element) -> Steps:
    return (yield element.node.source(), regroup(element.index, element.own_shape, element.shape(0)))


def _unsqueeze(element: Element) -> Steps:
    rank = len(element.index)
    axes = yield from element.axes()
    new = {axis % rank for axis in axes}
    return (yield element.node.source(), tuple(place for axis, place in enumerate(element.index) if axis not in new))


def _squeeze(element: Element) -> Steps:
    sizes = element.shape(0)
    has_axes = "axes" in element.node.attributes or element.node.input(1) is not None
    axes = (yield from element.axes()) if has_axes else [axis for axis, size in enumerate(sizes) if size is ONE]
    gone = {axis % len(sizes) for axis in axes}
    kept = iter(element.index)
    return (yield element.node.source(), tuple(ZERO if axis in gone else next(kept) for axis in range(len(sizes))))


def _transpose(element: Element) -> Steps:
    order = element.node.attributes.get("order") or tuple(reversed(range(len(element.index))))
    places: list[Expr] = [ZERO] * len(order)
    for axis, source in enumerate(order):
        places[source] = element.index[axis]
    return (yield element.node.source(), tuple(places))


def _broadcast(element: Element) -> Steps:
    if element.node.attributes.get("mode") == "explicit" or len(element.node.inputs) > 2:
        raise UnknownError("it names the axes to copy along")
    return (yield element.broadcast(0))


def _tile(element: Element) -> Steps:
    sizes, own = element.shape(0), element.own_shape
    places = []
    for place, size, result in zip(
        element.index[len(own) - len(sizes) :], sizes, own[len(own) - len(sizes) :], strict=True
    ):
        if size is result:
            places.append(place)
        elif size is ONE:
            places.append(ZERO)
        else:
            parts = divided(place, size)
            places.append(parts[1] if parts is not None else ex.modulo(place, size))
    return (yield element.node.source(), tuple(places))


def _start(bound: Expr, size: Expr) -> Expr:
    """Return the first place that a slice's start means on an axis of ``size``."""
    if bound.as_number == 0:
        return ZERO
    if is_natural(ex.subtract(ex.negative(bound), ONE)):
        place = ex.add(size, bound)
        return place if is_natural(place) else ex.maximum(place, ZERO)
    if not is_natural(bound):
        # Lengths after a past: the sign depends on the step.
        bound = ex.choose(ex.at_most(ZERO, bound), bound, ex.maximum(ex.add(size, bound), ZERO))
    # A start after the end leaves no element to write.
    return bound


def _first(start: Expr, size: Expr, step: Expr) -> Expr:
    """Return the first place that a slice keeps."""
    if is_natural(ex.subtract(step, ONE)):
        return _start(start, size)
    bound, count = start.as_number, size.as_number
    if step.as_number is None or not isinstance(bound, int):
        raise UnknownError("its step, or where it starts backward, is computed")
    if bound == -1 or bound >= NO_END:
        return ex.subtract(size, ONE)
    if not isinstance(count, int):
        raise UnknownError("it goes backward on an axis of unknown size")
    return number(min(bound if bound >= 0 else bound + count, count - 1))


def _slice(element: Element) -> Steps:
    node, sizes = element.node, element.shape(0)
    starts = yield from element.integers(1)
    steps_port = node.attributes["steps_port"]
    steps = (yield from element.integers(steps_port)) if node.input(steps_port) is not None else (ONE,) * len(starts)
    axes_port = 7 - steps_port
    if "axes" in node.attributes:
        axes = tuple(node.attributes["axes"])
    else:
        axes = (yield from element.axes(axes_port)) if node.input(axes_port) is not None else tuple(range(len(starts)))
    places = list(element.index)
    for axis, start, step in zip(axes, starts, steps, strict=True):
        places[axis] = ex.add(ex.multiply(places[axis], step), _first(start, sizes[axis], step))
    return (yield node.source(), tuple(places))


def _strided_slice(element: Element) -> Steps:
    node, sizes, given = element.node, element.shape(0), element.node.attributes
    if any(given["ellipsis_mask"]):
        raise UnknownError("it has an ellipsis")
    starts = yield from element.integers(1)
    steps = (yield from element.integers(3)) if node.input(3) is not None else (ONE,) * len(starts)

    def is_set(mask: str, place: int) -> bool:
        return place < len(given[mask]) and bool(given[mask][place])

    places: list[Expr] = []
    own = list(element.index)
    for place, (start, step) in enumerate(zip(starts, steps, strict=True)):
        if is_set("new_axis_mask", place):
            own.pop(0)
            continue
        size = sizes[len(places)]
        is_open = is_set("begin_mask", place) and not is_set("shrink_axis_mask", place)
        first = _first(number(0 if is_natural(step) else -1) if is_open else start, size, step)
        if is_set("shrink_axis_mask", place):
            places.append(first)
        else:
            places.append(ex.add(ex.multiply(own.pop(0), step), first))
    return (yield node.source(), (*places, *own))


def _split(element: Element) -> Steps:
    node, axis = element.node, element.node.attributes["axis"] % len(element.index)
    start: Expr = ZERO
    for output in node.outputs[: element.value.port]:
        start = ex.add(start, element.elements.shape(output)[axis])
    places = list(element.index)
    places[axis] = ex.add(places[axis], start)
    return (yield node.source(), tuple(places))


def _concat(element: Element) -> Steps:
    node, axis = element.node, element.node.attributes["axis"] % len(element.index)
    place, offset = element.index[axis], ZERO
    parts: list[tuple[Expr, Expr]] = []
    for port in range(len(node.inputs)):
        size = element.shape(port)[axis]
        end = ex.add(offset, size)
        inside = ex.less(place, end)
        if inside is not ex.FALSE and ex.at_most(offset, place) is not ex.FALSE:
            own = (*element.index[:axis], ex.subtract(place, offset), *element.index[axis + 1 :])
            parts.append((inside, (yield node.source(port), own)))
        if inside is ex.TRUE:
            break
        offset = end
    if not parts:
        raise UnknownError("no operand has the element")
    found = parts[-1][1]
    for inside, part in reversed(parts[:-1]):
        found = ex.choose(inside, part, found)
    return found


def _positive(place: Expr, size: Expr) -> Expr:
    """Return an index that may count from the end."""
    if is_natural(place) or place.op == "read":
        return place
    if is_natural(ex.subtract(ex.negative(place), ONE)):
        return ex.add(place, size)
    return ex.choose(ex.at_most(ZERO, place), place, ex.add(place, size))


def _gather(element: Element) -> Steps:
    node, sizes = element.node, element.shape(0)
    axis, batch = node.attributes["axis"] % len(sizes), node.attributes.get("batch_dims", 0)
    count = (node.source(1).rank or 0) - batch
    place = yield node.source(1), (*element.index[:batch], *element.index[axis : axis + count])
    rest = element.index[axis + count :]
    return (yield node.source(), (*element.index[:axis], _positive(place, sizes[axis]), *rest))


def _gather_elements(element: Element) -> Steps:
    axis = element.node.attributes.get("axis", 0) % len(element.index)
    place = yield element.node.source(1), element.index
    place = _positive(place, element.shape(0)[axis])
    return (yield element.node.source(), (*element.index[:axis], place, *element.index[axis + 1 :]))


def _gather_nd(element: Element) -> Steps:
    if element.node.attributes.get("batch_dims"):
        raise UnknownError("dialects gather by batch axes differently")
    sizes, indices = element.shape(0), element.shape(1)
    depth = indices[-1].as_number
    if not isinstance(depth, int):
        raise UnknownError("the number of its indices is not known")
    spread = element.index[: len(indices) - 1]
    places = []
    for axis in range(depth):
        place = yield element.node.source(1), (*spread, number(axis))
        places.append(_positive(place, sizes[axis]))
    return (yield element.node.source(), (*places, *element.index[len(indices) - 1 :]))


def _pad(element: Element) -> Steps:
    sizes = element.shape(0)
    rank = len(sizes)
    pads = yield from element.integers(1)
    before = pads[:rank]
    inside = ex.TRUE
    places = []
    for place, size, start in zip(element.index, sizes, before, strict=True):
        own = ex.subtract(place, start)
        inside = ex.conjunction(inside, ex.at_most(ZERO, own), ex.less(own, size))
        places.append(own)
    found = yield element.node.source(), tuple(places)
    if inside is ex.TRUE:
        return found
    ports = [port for port in (2, 3) if element.node.input(port) is not None and element.node.source(port).rank == 0]
    if not ports:
        raise UnknownError("its mode of padding is not in the graph")
    return ex.choose(inside, found, (yield element.node.source(ports[0]), ()))


# Writes


def _scatter_nd(element: Element) -> Steps:
    """Write slices at indices that are ranges of whole axes or of parts."""
    node, rank = element.node, len(element.index)
    if node.attributes.get("reduction", b"none") not in {b"none", "none"}:
        raise UnknownError("it reduces what it writes")
    indices = element.shape(1)
    depth = indices[-1].as_number
    if not isinstance(depth, int):
        raise UnknownError("the number of its indices is not known")
    part = _part_of_range(element) if depth == 1 and rank == 1 else None
    if part is not None:
        source, radix = part
        spread = [
            ex.index(f"write {axis} {node.index}", size) for axis, size in enumerate(element.elements.shape(source))
        ]
        place = yield source, tuple(spread)
        found, inside = solved(spread, index_of(place, radix), index_of(element.index[0], radix))
        where, sizes = tuple(found[one] for one in spread), tuple(one.args[1] for one in spread)
        update = element.elements.graph.producer(node.source(2))
        # Outside of the written slice the index may exceed its sizes, and cannot be divided into digits.
        is_flattened = update.op == "Reshape" and element.elements.shape(update.source()) == sizes
        written = yield (update.source(), where) if is_flattened else (node.source(2), (flat_place(where, sizes),))
    else:
        spread = [ex.index(f"write {axis} {node.index}", size) for axis, size in enumerate(indices[:-1])]
        places = []
        for axis in range(depth):
            places.append((yield node.source(1), (*spread, number(axis))))
        found, inside = solved(spread, tuple(places), element.index[:depth])
        written = yield node.source(2), (*(found[one] for one in spread), *element.index[depth:rank])
    if inside is ex.TRUE:
        return written
    return ex.choose(inside, written, (yield node.source(), element.index))


def _part_of_range(element: Element) -> tuple[Value, Index] | None:
    """Return the slice of a range that is flattened to indices, and the range's shape.

    OpenVINO's frontend writes ``x[:, :, :, :n] = y`` so (SliceAssign).
    """
    graph = element.elements.graph
    flattened = graph.producer(graph.look_through(element.node.source(1), CASTS))
    if flattened.op != "Reshape":
        return None
    part = flattened.source()
    whole = graph.producer(graph.look_through(part, SLICES))
    is_range = whole.op == "Reshape" and graph.producer(whole.source()).op == "Range"
    return (part, element.elements.shape(whole.outputs[0])) if is_range else None


def _scatter_update(element: Element) -> Steps:
    """Write slices along one axis."""
    node = element.node
    axes = (yield from element.integers(3)) if node.input(3) is not None else ()
    place = axes[0].as_number if axes else node.attributes.get("axis", 0)
    indices = element.shape(1)
    if not isinstance(place, int) or len(indices) != 1:
        raise UnknownError("its axis or its indices are computed")
    place %= len(element.index)
    spread = [ex.index(f"write {node.index}", indices[0])]
    written = yield node.source(1), tuple(spread)
    found, inside = solved(spread, (written,), (element.index[place],))
    update = yield node.source(2), (*element.index[:place], found[spread[0]], *element.index[place + 1 :])
    return update if inside is ex.TRUE else ex.choose(inside, update, (yield node.source(), element.index))


# Sources


def _shape_of(element: Element) -> Steps:
    sizes = element.shape(0)[element.node.attributes.get("start") : element.node.attributes.get("end")]
    yield from ()
    return chosen(sizes, element.index)


def _range(element: Element) -> Steps:
    start = yield element.node.source(0), ()
    step = yield element.node.source(2), ()
    return ex.add(start, ex.multiply(step, element.index[0]))


def _filled(element: Element) -> Steps:
    value = element.node.attributes["value"]
    held = number(getattr(value, "item", lambda: value)())
    yield from ()
    return ex.holds(held) if element.value.element_type == "boolean" else held


def _if(element: Element) -> Steps:
    node = element.node
    if len(node.inputs) != 3:
        raise UnknownError("its branches are not known")
    condition = yield node.source(0), (ZERO,) * (node.source(0).rank or 0)
    return ex.choose(ex.holds(condition), (yield node.source(1), element.index), (yield node.source(2), element.index))


# Sums


def _cum_sum(element: Element) -> Steps:
    node = element.node
    axis = (yield node.source(1), (ZERO,) * (node.source(1).rank or 0)).as_number
    if node.attributes.get("exclusive") or node.attributes.get("reverse") or not isinstance(axis, int):
        raise UnknownError("it sums from the end, or along a computed axis")
    axis %= len(element.index)
    bound = ex.index("summed", element.own_shape[axis])
    body = yield node.source(), (*element.index[:axis], bound, *element.index[axis + 1 :])
    if body.sort == "real":
        raise UnknownError("it sums real numbers")
    return ex.running_sum(ex.choose(body, ONE, ZERO) if body.sort == "bool" else body, bound, element.index[axis])


def _reduced(function: Callable[[Expr, Expr], Expr], sums: bool = False) -> Rule:
    def rule(element: Element) -> Steps:
        node, sizes = element.node, element.shape(0)
        has_axes = "axes" in node.attributes or node.input(1) is not None
        given = (yield from element.axes()) if has_axes else range(len(sizes))
        axes = {axis % len(sizes) for axis in given}
        keeps = len(element.index) == len(sizes)
        kept = iter(element.index)
        places = []
        for axis in range(len(sizes)):
            own = next(kept) if keeps or axis not in axes else ZERO
            places.append(ZERO if axis in axes else own)
        along = [axis for axis in sorted(axes) if sizes[axis] is not ONE]
        if not along:
            return (yield node.source(), tuple(places))
        count = sizes[along[0]].as_number
        if len(along) > 1 or not (sums or (isinstance(count, int) and count <= _MOST_TERMS)):
            raise UnknownError("it reduces axes of unknown size")
        if isinstance(count, int) and count <= _MOST_TERMS:
            terms = []
            for place in range(count):
                places[along[0]] = number(place)
                terms.append((yield node.source(), tuple(places)))
            return reduce(function, terms)
        bound = ex.index("summed", sizes[along[0]])
        places[along[0]] = bound
        body = yield node.source(), tuple(places)
        if body.sort == "real":
            raise UnknownError("it sums real numbers")
        return ex.running_sum(body, bound, ex.subtract(sizes[along[0]], ONE))

    return rule


def _trilu(element: Element) -> Steps:
    node = element.node
    offset = (yield node.source(1), (ZERO,) * (node.source(1).rank or 0)) if node.input(1) is not None else ZERO
    distance = ex.subtract(ex.subtract(element.index[-1], element.index[-2]), offset)
    kept = ex.at_most(ZERO, distance) if node.attributes["upper"] else ex.at_most(distance, ZERO)
    found = yield node.source(), element.index
    return ex.choose(kept, found, ex.FALSE if found.sort == "bool" else ZERO)


def _matmul(element: Element) -> Steps:
    """Multiply along an axis of few elements, as frequencies and positions are."""
    node, own = element.node, element.own_shape
    sizes = element.shape(0), element.shape(1)
    if min(map(len, sizes)) < 2:
        raise UnknownError("it multiplies a vector")
    swapped = bool(node.attributes["transpose_a"]), bool(node.attributes["transpose_b"])
    count = sizes[0][-2 if swapped[0] else -1].as_number
    if not isinstance(count, int) or count > _MOST_TERMS:
        raise UnknownError("it sums along an axis of many elements")
    row, column = element.index[-2:]
    total: Expr = ZERO
    for place in map(number, range(count)):
        ends = (place, row) if swapped[0] else (row, place), (column, place) if swapped[1] else (place, column)
        factors = []
        for port in (0, 1):
            batch = sizes[port][:-2]
            start = len(own) - 2 - len(batch)
            leading = tuple(
                ZERO if size is ONE else one for size, one in zip(batch, element.index[start:-2], strict=True)
            )
            factors.append((yield node.source(port), (*leading, *ends[port])))
        total = ex.add(total, ex.multiply(*factors))
    return total


RULES: dict[str, Rule] = {
    **dict.fromkeys(CASTS | {"ConvertLike"}, _same),
    **dict.fromkeys(ANDS - {"BitwiseAnd"}, _logical(ex.conjunction)),
    **dict.fromkeys(ORS - {"BitwiseOr"}, _logical(ex.disjunction)),
    **dict.fromkeys(NOTS - {"BitwiseNot"}, _logical(ex.negate)),
    **dict.fromkeys(SPLITS, _split),
    "Abs": _elementwise(_absolute),
    "Add": _elementwise(ex.add),
    "BitwiseAnd": _bitwise(ex.conjunction),
    "BitwiseNot": _bitwise(ex.negate),
    "BitwiseOr": _bitwise(ex.disjunction),
    "Broadcast": _broadcast,
    "Ceiling": _function("ceiling", math.ceil),
    "Clamp": _clip,
    "Clip": _clip,
    "Concat": _concat,
    "ConstantOfShape": _filled,
    "Cos": _function("cos", math.cos),
    "CumSum": _cum_sum,
    "Divide": _divide,
    "Equal": _elementwise(ex.equal),
    "Erf": _function("erf", math.erf),
    "Exp": _function("exp", math.exp),
    "Flatten": _reshape,
    "Floor": _function("floor", math.floor),
    "FloorMod": _modulo,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Greater": _elementwise(lambda one, other: ex.less(other, one)),
    "GreaterEqual": _elementwise(lambda one, other: ex.at_most(other, one)),
    "GreaterOrEqual": _elementwise(lambda one, other: ex.at_most(other, one)),
    "If": _if,
    "IsNaN": _elementwise(lambda _: ex.FALSE),
    "Less": _elementwise(ex.less),
    "LessEqual": _elementwise(ex.at_most),
    "LessOrEqual": _elementwise(ex.at_most),
    "Log": _function("log", math.log),
    "LogicalXor": _logical(lambda one, other: ex.negate(ex.equal(one, other))),
    "MatMul": _matmul,
    "Max": _folded(ex.maximum),
    "Maximum": _folded(ex.maximum),
    "Min": _folded(ex.minimum),
    "Minimum": _folded(ex.minimum),
    "Mod": _modulo,
    "Multiply": _elementwise(ex.multiply),
    "Negative": _elementwise(ex.negative),
    "NotEqual": _elementwise(lambda one, other: ex.negate(ex.equal(one, other))),
    "Pad": _pad,
    "Power": _elementwise(_power),
    "Range": _range,
    "Reciprocal": _elementwise(lambda operand: ex.divide(ONE, operand)),
    "ReduceLogicalAnd": _reduced(ex.conjunction),
    "ReduceLogicalOr": _reduced(ex.disjunction),
    "ReduceMax": _reduced(ex.maximum),
    "ReduceMin": _reduced(ex.minimum),
    "ReduceProd": _reduced(ex.multiply),
    "ReduceSum": _reduced(ex.add, sums=True),
    "Relu": _elementwise(lambda operand: ex.maximum(operand, ZERO)),
    "Reshape": _reshape,
    "ScatterNDUpdate": _scatter_nd,
    "ScatterUpdate": _scatter_update,
    "RotaryEmbedding": rotary,
    "Select": _elementwise(lambda condition, one, other: ex.choose(ex.holds(condition), one, other)),
    "ShapeOf": _shape_of,
    "Sigmoid": _elementwise(sigmoid),
    "Sin": _function("sin", math.sin),
    "Slice": _slice,
    "SoftPlus": _elementwise(_softplus),
    "Softplus": _elementwise(_softplus),
    "Sqrt": _function("sqrt", math.sqrt),
    "Squeeze": _squeeze,
    "StridedSlice": _strided_slice,
    "Subtract": _elementwise(ex.subtract),
    "Tanh": _function("tanh", math.tanh),
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
