"""Sizes of outputs that are not linear in dimensions: products, quotients, computed sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from graphpass.analysis.symbolic.bounds import is_natural, quotient
from graphpass.analysis.symbolic.elements import Elements, UnknownError
from graphpass.analysis.symbolic.expressions import (
    ONE,
    ZERO,
    Expr,
    add,
    choose,
    equal,
    floor_divide,
    multiply,
    number,
    subtract,
)
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.einsum import labels
from graphpass.ir.graph import Node, Value


def _reshape(elements: Elements, node: Node, axis: int) -> Expr | None:
    source = elements.shape(node.source())
    targets = _all(elements, node.source(1), node.outputs[0].rank or 0)
    keeps_sizes = node.attributes.get("special_zero", True)
    if axis >= len(targets) or (keeps_sizes and ZERO in targets[len(source) :]):
        # Declarations of a damaged model contradict each other.
        return None
    if keeps_sizes:
        targets = [source[place] if size is ZERO else size for place, size in enumerate(targets)]
    if targets[axis].as_number != -1:
        return targets[axis]
    count, others = list(source), [*targets[:axis], *targets[axis + 1 :]]
    exact = quotient(reduce(multiply, count, ONE), reduce(multiply, others, ONE))
    if exact is not None:
        return exact
    for size in tuple(others):
        if size in count:
            count.remove(size)
            others.remove(size)
    # The division is exact if the model runs, for example for a length that is padded to whole chunks.
    return floor_divide(reduce(multiply, count, ONE), reduce(multiply, others, ONE))


def _flatten(elements: Elements, node: Node, axis: int) -> Expr:
    sizes, split = elements.shape(node.source()), node.attributes.get("axis", 1)
    return reduce(multiply, sizes[split:] if axis else sizes[:split], ONE)


def _broadcast(elements: Elements, node: Node, axis: int) -> Expr | None:
    source, count = elements.shape(node.source()), elements.shape(node.source(1))[0].as_number
    rank = node.outputs[0].rank or 0
    if len(node.inputs) != 2 or not isinstance(count, int):
        return None
    place, own = axis - rank + count, axis - rank + len(source)
    target = elements.of(node.source(1), (number(place),)) if place >= 0 else ONE
    size = source[own] if own >= 0 else ONE
    # Sizes other than 1 are equal if the model runs.
    return target if size is ONE else size if target in (ONE, size) else choose(equal(size, ONE), target, size)


def _pad(elements: Elements, node: Node, axis: int) -> Expr | None:
    # ONNX has one input for both ends, and one for axes after the value.
    is_onnx = hasattr(node.native, "domain")
    if is_onnx and node.input(3) is not None:
        return None
    ends = ((1, axis), (1, axis + (node.outputs[0].rank or 0))) if is_onnx else ((1, axis), (2, axis))
    pads = [elements.of(node.source(port), (number(place),)) for port, place in ends]
    return add(elements.shape(node.source())[axis], *pads)


def _range(elements: Elements, node: Node, _: int) -> Expr | None:
    start, stop, step = (elements.of(node.source(port), ()) for port in range(3))
    return subtract(stop, start) if step is ONE else None


def _slice(elements: Elements, node: Node, axis: int) -> Expr | None:
    """Return the number of elements of a Slice of step 1; ``None`` if unknown."""
    size, axes = elements.shape(node.source())[axis], node.attributes.get("axes", ())
    place = next((place for place, own in enumerate(axes) if own % (node.outputs[0].rank or 1) == axis), None)
    steps = node.input(node.attributes["steps_port"])
    if place is None or (steps is not None and elements.of(steps, (number(place),)) is not ONE):
        return None
    start, stop = (_within(elements.of(node.source(port), (number(place),)), size) for port in (1, 2))
    if start is None or stop is None:
        return None
    count = subtract(stop, start)
    return count if start is ZERO or is_natural(count) else None


def _within(index: Expr, size: Expr) -> Expr | None:
    """Return a Slice's index between 0 and ``size``; ``None`` if lengths decide."""
    if is_natural(subtract(index, size)):
        return size
    is_inside = index is ZERO or (is_natural(index) and is_natural(subtract(size, index)))
    return index if is_inside else None


def _tile(elements: Elements, node: Node, axis: int) -> Expr:
    return multiply(elements.shape(node.source())[axis], elements.of(node.source(1), (number(axis),)))


def _all(elements: Elements, vector: Value, count: int) -> list[Expr]:
    return [elements.of(vector, (number(place),)) for place in range(count)]


def _gemm(elements: Elements, node: Node, axis: int) -> Expr:
    attributes = native_attributes(node)
    swapped = bool(attributes.get("transB" if axis else "transA", 0))
    return elements.shape(node.source(axis))[axis ^ swapped]


def einsum_axes(node: Node) -> tuple[list[str], str]:
    """Return the axis labels of each operand of an Einsum, and those of the result.

    Raises:
        UnknownError: The equation has an ellipsis.
    """
    axes = labels(str(node.attributes["equation"]))
    if axes is None:
        raise UnknownError("its equation has an ellipsis")
    return axes


def _einsum(elements: Elements, node: Node, axis: int) -> Expr:
    operands, result = einsum_axes(node)
    sizes = [
        size
        for port, operand in enumerate(operands)
        for label, size in zip(operand, elements.shape(node.source(port)), strict=True)
        if label == result[axis]
    ]
    return next((size for size in sizes if size is not ONE), ONE)


def _concat(elements: Elements, node: Node, axis: int) -> Expr:
    if axis != node.attributes["axis"] % (node.outputs[0].rank or 1):
        return elements.shape(node.source())[axis]
    return reduce(add, (elements.shape(value)[axis] for value in node.sources))


def paddings(attributes: Mapping[str, Any], count: int) -> list[int] | None:
    """Return a convolution's pads, ``[begin, end]``; ``None`` if ``auto_pad`` computes them from sizes.

    Args:
        attributes: Attributes of ONNX or OpenVINO.
        count: Number of spatial axes.
    """
    padding = str(attributes.get("auto_pad", "explicit")).lower()
    if padding not in {"explicit", "notset", "valid"}:
        return None
    none = [0] * count
    pads = attributes.get("pads") or [*attributes.get("pads_begin", none), *attributes.get("pads_end", none)]
    return 2 * none if padding == "valid" else [int(pad) for pad in pads]


def _convolution(elements: Elements, node: Node, axis: int) -> Expr | None:
    """Return the batch size, or a spatial size for stride 1; ``None`` for others."""
    data, weight, attributes = elements.shape(node.source(0)), elements.shape(node.source(1)), native_attributes(node)
    if axis < 2:
        return data[0] if axis == 0 else None
    place, count = axis - 2, len(data) - 2
    pads = paddings(attributes, count)
    if pads is None:
        return None
    strides, dilations = (list(attributes.get(name) or [1] * count) for name in ("strides", "dilations"))
    padded = pads[place] + pads[count + place]
    reach = multiply(number(int(dilations[place])), subtract(weight[axis - len(data)], ONE))
    return subtract(add(data[axis], number(padded)), reach) if int(strides[place]) == 1 else None


#: Rules for the size of an axis of the first output, by operator.
RULES: dict[str, Callable[[Elements, Node, int], Expr | None]] = {
    **dict.fromkeys(("Conv", "Convolution", "GroupConvolution"), _convolution),
    "Broadcast": _broadcast,
    "Concat": _concat,
    "ConstantOfShape": lambda elements, node, axis: elements.of(node.source(), (number(axis),)),
    "Einsum": _einsum,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Tile": _tile,
}
