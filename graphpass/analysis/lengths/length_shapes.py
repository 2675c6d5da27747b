"""Dimensions that OpenVINO's shape inference does not tell apart, or not together."""

from __future__ import annotations

from math import prod

import openvino

from graphpass.analysis.shapes.linear_size import Size, Vector, divide, multiply

__all__ = ["equations", "infer_shape"]


def infer_shape(op: openvino.Node, shapes: list[Vector | None], values: list[Vector | None]) -> dict[int, Size]:
    """Dimensions of the first output that OpenVINO's shape inference loses, by axis."""
    kind = op.get_type_name()
    if kind == "Concat" and None not in shapes:
        axis = op.get_attributes()["axis"]
        known = [shape for shape in shapes if shape is not None]
        axis %= len(known[0])
        return {axis: sum((shape[axis] for shape in known), Size())}
    if kind == "Range" and None not in values:
        (start,), (stop,), (step,) = (value or (Size(),) for value in values)
        length = stop - start
        return {0: length} if step.plain == 1 and length.is_natural else {}
    if kind == "ScaledDotProductAttention":
        return _attended(shapes)
    if kind == "Slice" and shapes[0] is not None and len(values) == 5 and None not in values[1:]:
        return _kept(shapes[0], *(value or () for value in values[1:]))
    if kind in {"Broadcast", "Reshape"} and shapes[0] is not None and values[1] is not None:
        sizes = enumerate(_target(op, shapes[0], values[1]))
        return {axis: size for axis, size in sizes if size is not None}
    return {}


def _kept(
    shape: Vector,
    starts: Vector,
    stops: Vector,
    steps: Vector,
    axes: Vector,
) -> dict[int, Size]:
    """How long the sliced axes are where a Slice keeps what is before a length."""
    found = {}
    for start, stop, step, axis in zip(starts, stops, steps, axes, strict=True):
        if start.plain == 0 and step.plain == 1 and axis.plain is not None and stop.is_natural:
            whole = shape[axis.plain]
            if (stop - whole).is_natural:
                found[axis.plain % len(shape)] = whole
            elif (whole - stop).is_natural:
                found[axis.plain % len(shape)] = stop
    return found


def equations(op: openvino.Node, shapes: list[Vector | None]) -> list[tuple[Size, Size]]:
    """Lengths that are equal where ``op`` is valid."""
    kind = op.get_type_name()
    if kind == "ScaledDotProductAttention" and shapes[1] and shapes[2]:
        return [(shapes[1][-2], shapes[2][-2])]
    if kind == "Add" and shapes[0] and shapes[1] and all(map(_is_embedding, op.input_values())):
        return [(shapes[0][-2], shapes[1][-2])]
    return []


def _is_embedding(value: openvino.Output) -> bool:
    """Whether ``value`` is rows of a table, chosen by an input."""
    node = value.get_node()
    while node.get_type_name() == "Convert":
        node = node.input_value(0).get_node()
    if node.get_type_name() != "Gather" or len(node.get_input_partial_shape(0)) != 2:
        return False
    rows = node.input_value(1)
    return bool(rows.get_partial_shape().rank == openvino.Dimension(2) and rows.get_partial_shape().is_dynamic)


def _attended(shapes: list[Vector | None]) -> dict[int, Size]:
    """The dimensions of attention's result: the query's, unless the mask has others."""
    query, mask = shapes[0], shapes[3] if len(shapes) > 3 else ()
    if query is None or mask is None:
        return {}
    one = Size(1)
    padded = (one,) * (len(query) - len(mask)) + mask
    axes = range(len(query) - 1)
    return {axis: query[axis] for axis in axes if padded[axis] in {one, query[axis]}}


def _target(op: openvino.Node, shape: Vector, target: Vector) -> list[Size | None]:
    """The dimensions that a Broadcast or Reshape gives to what has ``shape``; ``None`` for those that are not clear."""
    attributes = op.get_attributes()
    if op.get_type_name() == "Broadcast":
        if attributes["mode"] != "bidirectional":
            return list(target)
        padded = (Size(1),) * (len(target) - len(shape)) + shape
        rows = zip(padded[len(padded) - len(target) :], target, strict=True)
        return [two if one.plain == 1 or one == two else one if two.plain == 1 else None for one, two in rows]
    sizes: list[Size | None] = []
    for axis, size in enumerate(target):
        copied = shape[axis] if axis < len(shape) else None
        sizes.append(copied if size.plain == 0 and attributes["special_zero"] else size if size.is_natural else None)
    if [size.plain for size in target].count(-1) == 1 and sizes.count(None) == 1:
        sizes[sizes.index(None)] = _remaining(shape, [size for size in sizes if size is not None])
    return sizes


def _remaining(shape: Vector, others: list[Size]) -> Size | None:
    """The dimension that ``others`` lack to hold as many elements as ``shape``."""
    kept = list(shape)
    for size in list(others):
        if size in kept:
            kept.remove(size)
            others.remove(size)
    if any(size.plain is None for size in others):
        return None
    product: Size | None = Size(1)
    for size in kept:
        product = multiply(product, size) if product is not None else None
    if product is None:
        return None
    return divide(product, Size(prod(size.plain or 0 for size in others)))
