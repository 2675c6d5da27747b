"""Rules of layout operators: Reshape, Transpose, Broadcast, Slice, Split and Concat."""

from __future__ import annotations

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import divided, is_natural
from graphpass.analysis.symbolic.elements import Element, Rule, Steps, UnknownError, aligned
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.places import regroup
from graphpass.ir.cuts import NO_END, is_set
from graphpass.ir.operators import SPLITS

#: Inputs of a Broadcast with a mapping of axes.
_MAPPED = 3


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
    if element.node.attributes.get("mode") == "pdpd":
        raise UnknownError("its mode is pdpd")
    if len(element.node.inputs) < _MAPPED:
        return (yield element.broadcast(0))
    axes = yield from element.integers(2)
    places = [int(axis.as_number or 0) for axis in axes]
    sizes = zip(places, element.shape(0), strict=True)
    return (yield element.node.source(), tuple(aligned(element.index[axis], size) for axis, size in sizes))


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
            inner = ZERO if size is ex.ONE else ex.subtract(place, offset)
            own = element.index_with(axis, inner)
            parts.append((inside, (yield node.source(port), own)))
        if inside is ex.TRUE:
            break
        offset = end
    if not parts:
        raise UnknownError("the index is outside of all operands")
    expr = parts[-1][1]
    for inside, part in reversed(parts[:-1]):
        expr = ex.choose(inside, part, expr)
    return expr


def _start(bound: Expr, size: Expr) -> Expr:
    """Return the index that a slice's start denotes on an axis of ``size``."""
    if bound.as_number == 0:
        return ZERO
    if is_natural(ex.subtract(ex.negative(bound), ONE)):
        place = ex.add(size, bound)
        return place if is_natural(place) else ex.maximum(place, ZERO)
    if not is_natural(bound):
        # The sign of the bound depends on lengths of the step.
        bound = ex.choose(ex.at_most(ZERO, bound), bound, ex.maximum(ex.add(size, bound), ZERO))
    # A start after the end needs no clamping: the output is empty.
    return bound


def _first(start: Expr, size: Expr, step: Expr) -> Expr:
    """Return the index of the first element of a slice.

    Raises:
        UnknownError: The step, or for steps below 1 the start or size, is not constant.
    """
    if is_natural(ex.subtract(step, ONE)):
        return _start(start, size)
    bound, count = start.as_number, size.as_number
    if step.as_number is None or not isinstance(bound, int):
        raise UnknownError("its step, or its start for a step below 1, is not constant")
    if bound == -1 or bound >= NO_END:
        return ex.subtract(size, ONE)
    if not isinstance(count, int):
        raise UnknownError("its step is below 1 on an axis of unknown size")
    return number(min(bound if bound >= 0 else max(bound + count, 0), count - 1))


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
    node, sizes, attributes = element.node, element.shape(0), element.node.attributes
    if any(attributes["ellipsis_mask"]):
        raise UnknownError("it has an ellipsis_mask")
    starts = yield from element.integers(1)
    steps = (yield from element.integers(3)) if node.input(3) is not None else (ONE,) * len(starts)

    places: list[Expr] = []
    own = list(element.index)
    for place, (start, step) in enumerate(zip(starts, steps, strict=True)):
        if is_set(attributes["new_axis_mask"], place):
            own.pop(0)
            continue
        size = sizes[len(places)]
        is_open = is_set(attributes["begin_mask"], place)
        if is_open and is_set(attributes["shrink_axis_mask"], place):
            raise UnknownError("devices differ if begin_mask and shrink_axis_mask have the same axis")
        first = _first(number(0 if is_natural(step) else -1) if is_open else start, size, step)
        if is_set(attributes["shrink_axis_mask"], place):
            places.append(first)
        else:
            places.append(ex.add(ex.multiply(own.pop(0), step), first))
    return (yield node.source(), (*places, *own))


RULES: dict[str, Rule] = {
    **dict.fromkeys(SPLITS, _split),
    "Broadcast": _broadcast,
    "Concat": _concat,
    "Flatten": _reshape,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "StridedSlice": _strided_slice,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
