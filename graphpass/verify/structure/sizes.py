"""Sizes of results that shape inference leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.elements import Elements, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.folding import fold_cuts
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.axes import NO_END
from graphpass.ir.einsum import labels
from graphpass.ir.graph import Node


def _gemm_size(elements: Elements, node: Node, axis: int) -> Expr:
    attributes = native_attributes(node)
    swapped = bool(attributes.get("transB" if axis else "transA", 0))
    return elements.shape(node.source(axis))[axis ^ swapped]


def einsum_axes(node: Node) -> tuple[list[str], str]:
    """Return the axes of each operand of Einsum, and those of the result.

    Raises:
        UnknownError: Some axes have no label.
    """
    axes = labels(str(node.attributes["equation"]))
    if axes is None:
        raise UnknownError("some axes have no label")
    return axes


def _einsum_size(elements: Elements, node: Node, axis: int) -> Expr:
    operands, result = einsum_axes(node)
    sizes = [
        size
        for port, operand in enumerate(operands)
        for label, size in zip(operand, elements.shape(node.source(port)), strict=True)
        if label == result[axis]
    ]
    return next((size for size in sizes if size is not ONE), ONE)


def _concat_size(elements: Elements, node: Node, axis: int) -> Expr:
    if axis != node.attributes["axis"] % (node.outputs[0].rank or 1):
        return elements.shape(node.source())[axis]
    return reduce(ex.add, (elements.shape(value)[axis] for value in node.sources))


def paddings(attributes: Mapping[str, Any], count: int) -> list[int] | None:
    """Return the places that a convolution adds; ``None`` if sizes decide."""
    padding = str(attributes.get("auto_pad", "explicit")).lower()
    if padding not in {"explicit", "notset", "valid"}:
        return None
    none = [0] * count
    pads = attributes.get("pads") or [*attributes.get("pads_begin", none), *attributes.get("pads_end", none)]
    return 2 * none if padding == "valid" else [int(pad) for pad in pads]


def _convolution_size(elements: Elements, node: Node, axis: int) -> Expr | None:
    """Return the number of rows, or of places of a kernel that moves by 1."""
    data, weight, attributes = elements.shape(node.source(0)), elements.shape(node.source(1)), native_attributes(node)
    if axis < 2:
        return data[0] if axis == 0 else None
    place, count = axis - 2, len(data) - 2
    pads = paddings(attributes, count)
    if pads is None:
        return None
    strides, dilations = (list(attributes.get(name) or [1] * count) for name in ("strides", "dilations"))
    padded = pads[place] + pads[count + place]
    reach = ex.multiply(number(int(dilations[place])), ex.subtract(weight[axis - len(data)], ONE))
    return ex.subtract(ex.add(data[axis], number(padded)), reach) if int(strides[place]) == 1 else None


def _slice_size(elements: Elements, node: Node, axis: int) -> Expr | None:
    """Return the size of an axis that is reversed, or cut to its first elements."""
    size, cuts = elements.shape(node.source())[axis], fold_cuts(elements.graph, node)
    by_axis = {cut.axis % (node.outputs[0].rank or 1): (place, cut.step) for place, cut in enumerate(cuts)}
    if axis not in by_axis:
        return size if by_axis else None
    place, step = by_axis[axis]
    start, end = (elements.of(node.source(port), (number(place),)) for port in (1, 2))
    if step == -1 and isinstance(end.as_number, int) and end.as_number <= -NO_END:
        is_last = isinstance(start.as_number, int) and (start.as_number == -1 or start.as_number >= NO_END)
        return size if is_last else None
    if step == 1 and start is ZERO and isinstance(end.as_number, int) and end.as_number >= NO_END:
        return size
    is_within = is_natural(end) and is_natural(ex.subtract(size, end))
    return end if step == 1 and start is ZERO and is_within else None


SIZES = {
    **dict.fromkeys(("Conv", "Convolution", "GroupConvolution"), _convolution_size),
    "Concat": _concat_size,
    "Einsum": _einsum_size,
    "Gemm": _gemm_size,
    "Slice": _slice_size,
}
