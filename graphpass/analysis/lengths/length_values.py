"""What OpenVINO's operators compute of dimensions."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TypeAlias

import numpy
import openvino

from graphpass.analysis.shapes.linear_size import Size, Vector, divide, multiply

__all__ = ["evaluate"]

#: The largest tensor that `evaluate` looks at: shapes, and what is computed of them.
_ELEMENTS = 16

_Rule: TypeAlias = Callable[[openvino.Output, list[Vector]], Vector | None]

_INTEGERS = frozenset({"boolean", "i32", "i64"})


def evaluate(
    op: openvino.Node,
    output: openvino.Output,
    shapes: list[Vector | None],
    values: list[Vector | None],
) -> Vector | None:
    """The elements of ``output``, where it is a small integer tensor made of dimensions and constants.

    Args:
        op: The operator.
        output: One of its outputs.
        shapes: The dimensions of its inputs; ``None`` where the rank is not known.
        values: The elements of its inputs; ``None`` where they are not known.
    """
    kind, shape = op.get_type_name(), output.get_partial_shape()
    if output.get_element_type().to_string() not in _INTEGERS or shape.is_dynamic or prod(shape.to_shape()) > _ELEMENTS:
        return None
    if kind == "Constant":
        return tuple(Size(int(element)) for element in numpy.ravel(op.data))
    if kind == "ShapeOf":
        return shapes[0]
    rule = _RULES.get(kind)
    if rule is None or not values or any(value is None for value in values):
        return None
    result = rule(output, [value for value in values if value is not None])
    return result if result is not None and len(result) == prod(shape.to_shape()) else None


def _same(_output: openvino.Output, inputs: list[Vector]) -> Vector:
    return inputs[0]


def _convert(output: openvino.Output, inputs: list[Vector]) -> Vector | None:
    op, boolean = output.get_node(), output.get_element_type() == openvino.Type.boolean
    return None if boolean and op.input_value(0).get_element_type() != openvino.Type.boolean else inputs[0]


def _concat(output: openvino.Output, inputs: list[Vector]) -> Vector | None:
    return tuple(size for value in inputs for size in value) if len(output.get_shape()) == 1 else None


def _gather(output: openvino.Output, inputs: list[Vector]) -> Vector | None:
    data, indices, axis = inputs
    if len(output.get_node().get_input_partial_shape(0)) != 1 or axis[0].plain not in {0, -1}:
        return None
    chosen = [index.plain for index in indices]
    if any(index is None or not -len(data) <= index < len(data) for index in chosen):
        return None
    return tuple(data[index] for index in chosen if index is not None)


def _slice(output: openvino.Output, inputs: list[Vector]) -> Vector | None:
    op, bounds = output.get_node(), [[size.plain for size in value] for value in inputs[1:4]]
    if len(op.get_input_partial_shape(0)) != 1 or any(len(bound) != 1 or bound[0] is None for bound in bounds):
        return None
    if op.get_type_name() == "StridedSlice":
        masks = op.get_attributes()
        if any(masks["new_axis_mask"]) or any(masks["ellipsis_mask"]):
            return None
        for bound, mask in zip(bounds, (masks["begin_mask"], masks["end_mask"]), strict=False):
            if mask and mask[0]:
                bound[0] = None
        if any(masks["shrink_axis_mask"]):
            start = bounds[0][0] or 0
            return inputs[0][start : start + 1 or None]
    return inputs[0][slice(*(bound[0] for bound in bounds))]


def _split(output: openvino.Output, inputs: list[Vector]) -> Vector | None:
    op = output.get_node()
    if len(op.get_input_partial_shape(0)) != 1:
        return None
    lengths = [other.get_shape()[0] for other in op.outputs()]
    start = sum(lengths[: output.get_index()])
    return inputs[0][start : start + lengths[output.get_index()]]


def _broadcast(output: openvino.Output, inputs: list[Vector]) -> Vector | None:
    return inputs[0] * prod(output.get_shape()) if len(inputs[0]) == 1 else None


def _elementwise(compute: Callable[[Size, Size], Size | None]) -> _Rule:
    def rule(output: openvino.Output, inputs: list[Vector]) -> Vector | None:
        op, shape = output.get_node(), output.get_shape()
        places = [
            numpy.broadcast_to(numpy.arange(len(value)).reshape(op.get_input_shape(port)), shape).ravel()
            for port, value in enumerate(inputs)
        ]
        found = [compute(inputs[0][one], inputs[1][two]) for one, two in zip(*places, strict=True)]
        return tuple(size for size in found if size is not None) if None not in found else None

    return rule


def _equal(one: Size, two: Size) -> Size | None:
    difference = one - two
    if difference.plain is not None:
        return Size(int(difference.plain == 0))
    # What is at least 1 is not 0.
    apart = any((side - Size(1)).is_natural for side in (difference, two - one))
    return Size() if apart else None


def _select(_output: openvino.Output, inputs: list[Vector]) -> Vector | None:
    if len({len(value) for value in inputs}) > 1 or any(size.plain is None for size in inputs[0]):
        return None
    return tuple(then if condition.plain else other for condition, then, other in zip(*inputs, strict=True))


_RULES: dict[str, _Rule] = {
    "Add": _elementwise(Size.__add__),
    "Broadcast": _broadcast,
    "Concat": _concat,
    "Convert": _convert,
    "Divide": _elementwise(divide),
    "Equal": _elementwise(_equal),
    "Gather": _gather,
    "Multiply": _elementwise(multiply),
    "Reshape": _same,
    "Select": _select,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _same,
    "StridedSlice": _slice,
    "Subtract": _elementwise(Size.__sub__),
    "Unsqueeze": _same,
    "VariadicSplit": _split,
}
