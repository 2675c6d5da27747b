"""Compute single operators that masks, angles and updates of states are made of, in numpy.

Only operators with one meaning in both dialects are computed, and the attributes in which they differ are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, TypeAlias

import numpy

from graphpass.analysis.symbolic.arrays import FUNCTIONS, MOVES, range_size
from graphpass.ir.graph import Node

Array: TypeAlias = "numpy.ndarray[Any, Any]"

#: Elements of the largest constant that is read, as `graphpass.analysis.symbolic.constants.LARGEST_MASK`, and of the
#: largest tensor that is computed.
LARGEST = 1 << 24


def computed(node: Node, port: int, inputs: list[Array]) -> Array | None:
    """Compute an output of ``node``.

    Returns:
        The tensor; ``None`` if it is too large, or not known for these attributes.
    """
    if node.op == "Range" and range_size(*inputs) > LARGEST:
        return None
    if node.op in FUNCTIONS and numpy.prod(numpy.broadcast_shapes(*(one.shape for one in inputs))) > LARGEST:
        return None
    if node.op in MOVES:
        return MOVES[node.op](node, port, inputs)
    return FUNCTIONS[node.op](*inputs) if node.op in FUNCTIONS else _FURTHER[node.op](node, inputs)


def is_known(node: Node) -> bool:
    """Return whether `computed` takes the operator of ``node``."""
    return node.op in MOVES or node.op in FUNCTIONS or node.op in _FURTHER


def _constant_of_shape(node: Node, inputs: list[Array]) -> Array:
    return numpy.full([int(size) for size in inputs[0].reshape(-1)], node.attributes["value"])


def _running_sum(node: Node, inputs: list[Array]) -> Array | None:
    if node.attributes.get("exclusive") or node.attributes.get("reverse"):
        return None
    return numpy.cumsum(inputs[0], int(inputs[1].item()))


def _flatten(node: Node, inputs: list[Array]) -> Array:
    axis = node.attributes.get("axis", 1)
    rows = int(numpy.prod(inputs[0].shape[:axis], dtype=int))
    return inputs[0].reshape(rows, -1) if inputs[0].size else inputs[0].reshape(rows, 0)


def _gathered(node: Node, inputs: list[Array]) -> Array | None:
    # The dialects disagree on several batch axes: GatherND-5 of OpenVINO merges them.
    if node.attributes.get("batch_dims"):
        return None
    data, indices = inputs
    found: Array = data[tuple(numpy.moveaxis(indices, -1, 0))]
    return found


def _matmul(node: Node, inputs: list[Array]) -> Array:
    first, second = inputs
    first = first.swapaxes(-1, -2) if node.attributes["transpose_a"] else first
    return first @ (second.swapaxes(-1, -2) if node.attributes["transpose_b"] else second)


def _rotated(node: Node, inputs: list[Array]) -> Array | None:
    """Rotate halves or pairs of heads.

    com.microsoft has positions before the tables; ONNX has them behind, or tables with a row for each new position.
    """
    whole, *given = inputs
    cos, sin = (one for one in given if one.dtype.kind == "f")
    places = [one for one in given if one.dtype.kind != "f"]
    if whole.ndim != 4 or node.attributes.get("scale", 1.0) != 1.0 or any(one.ndim != 2 for one in places):
        return None
    cos, sin = (table[places[0]] if places else table for table in (cos, sin))
    if cos.ndim != 3:
        return None
    cos, sin, half = cos[:, None], sin[:, None], cos.shape[-1]
    is_interleaved = node.attributes.get("interleaved")
    ends = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if is_interleaved else (slice(half), slice(half, 2 * half))
    first, second = (whole[..., end] for end in ends)
    result = whole.copy()
    result[..., ends[0]], result[..., ends[1]] = first * cos - second * sin, first * sin + second * cos
    return result


def _scatter(node: Node, inputs: list[Array]) -> Array | None:
    if node.attributes.get("reduction", b"none") != b"none":
        return None
    data, indices, updates = inputs
    result = data.copy()
    result[tuple(numpy.moveaxis(indices, -1, 0))] = updates
    return result


def _padded(node: Node, inputs: list[Array]) -> Array | None:
    rank, ends = inputs[0].ndim, inputs[2] if len(inputs) > 2 and inputs[2].size == inputs[0].ndim else None
    before, after = (inputs[1], ends) if ends is not None else (inputs[1][:rank], inputs[1][rank:])
    if not before.any() and not after.any():
        return inputs[0]
    # Modes are not in the graph; a constant alone has a number to pad with.
    number = inputs[3:4] if ends is not None else inputs[2:3]
    if not number or len(node.inputs) > len(inputs) or before.size != rank or min(*before, *after) < 0:
        return None
    return numpy.pad(inputs[0], list(zip(before, after, strict=True)), constant_values=number[0].item())


def _reduced(function: Callable[..., Array]) -> Callable[[Node, list[Array]], Array | None]:
    def reduce_axes(node: Node, inputs: list[Array]) -> Array | None:
        given = inputs[1] if len(inputs) > 1 else node.attributes.get("axes")
        axes = None if given is None else tuple(int(axis) for axis in numpy.reshape(given, -1))
        # Ranks in bodies may not be known.
        rank = node.outputs[0].rank
        keeps = node.attributes.get("keeps_axes", None if rank is None else rank == inputs[0].ndim)
        # The dialects disagree on a list of no axes.
        return None if keeps is None or axes == () else function(inputs[0], axis=axes, keepdims=keeps)

    return reduce_axes


def _triangle(node: Node, inputs: list[Array]) -> Array:
    offset = int(inputs[1].item()) if len(inputs) > 1 else 0
    return numpy.triu(inputs[0], offset) if node.attributes["upper"] else numpy.tril(inputs[0], offset)


def _sum(node: Node, inputs: list[Array]) -> Array | None:
    # Without axes it sums all or none, by an attribute that is not in the graph.
    has_axes = len(inputs) > 1 or "axes" in node.attributes
    return _reduced(numpy.sum)(node, inputs) if has_axes else None


#: Functions of single elements that loops over tokens compute.
ELEMENTWISE: dict[str, Callable[[Array], Array]] = {
    "Exp": numpy.exp,
    "Negative": numpy.negative,
    "Sigmoid": lambda array: 1 / (1 + numpy.exp(-array)),
    "Softplus": lambda array: numpy.logaddexp(array, 0),
}

#: Operators that masks, angles and updates of states are made of, besides those of
#: `graphpass.analysis.symbolic.arrays`.
_FURTHER: dict[str, Callable[[Node, list[Array]], Array | None]] = {
    "BitwiseAnd": lambda _node, inputs: numpy.bitwise_and(*inputs),
    "BitwiseNot": lambda _node, inputs: numpy.bitwise_not(inputs[0]),
    "BitwiseOr": lambda _node, inputs: numpy.bitwise_or(*inputs),
    "ConstantOfShape": _constant_of_shape,
    "ConvertLike": lambda _node, inputs: inputs[0].astype(inputs[1].dtype),
    "Cos": lambda _node, inputs: numpy.cos(inputs[0]),
    "CumSum": _running_sum,
    "Einsum": lambda node, inputs: numpy.einsum(node.attributes["equation"].decode(), *inputs),
    "Flatten": _flatten,
    "GatherElements": lambda node, inputs: numpy.take_along_axis(inputs[0], inputs[1], node.attributes.get("axis", 0)),
    "GatherND": _gathered,
    "IsNaN": lambda _node, inputs: numpy.isnan(inputs[0]),
    "MatMul": _matmul,
    "NonZero": lambda _node, inputs: numpy.array(numpy.nonzero(inputs[0])),
    "ReduceSum": _sum,
    "Max": lambda _node, inputs: reduce(numpy.maximum, inputs),
    "Min": lambda _node, inputs: reduce(numpy.minimum, inputs),
    "Pad": _padded,
    "ReduceMax": _reduced(numpy.max),
    "ReduceMin": _reduced(numpy.min),
    "ReduceProd": _reduced(numpy.prod),
    "ScatterNDUpdate": _scatter,
    "RotaryEmbedding": _rotated,
    "Sigmoid": lambda _node, inputs: ELEMENTWISE["Sigmoid"](inputs[0]),
    "Sin": lambda _node, inputs: numpy.sin(inputs[0]),
    "Softplus": lambda _node, inputs: ELEMENTWISE["Softplus"](inputs[0]),
    "Tile": lambda _node, inputs: numpy.tile(inputs[0], [int(count) for count in inputs[1].reshape(-1)]),
    "Trilu": _triangle,
}
