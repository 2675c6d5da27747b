"""The map from axes of an operator's first input to axes of its output.

Size inference, axis labels and layout propagation share this table. It excludes sizes that depend on elements of
inputs.

Sources: the operator specifications of ONNX and of OpenVINO's opset13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Literal, TypeAlias

from graphpass.ir.graph import Node, Value
from graphpass.ir.operators import COMPRESSED_PRODUCTS, ELEMENTWISE, NORMS, SCATTERS, SLICES, SPLITS
from graphpass.ir.types import Dimension
from graphpass.ir.values import fixed_size

if TYPE_CHECKING:
    import numpy


EffectKind = Literal[
    "elementwise",
    "norm",
    "same",
    "move",
    "copy",
    "pad",
    "join",
    "cut",
    "part",
    "take",
    "rows",
    "write",
    "reduce",
    "product",
    "window",
    "iteration",
]


@dataclass(frozen=True, slots=True)
class AxisEffect:
    """The map from axes of an operator's first input to axes of its output.

    Attributes:
        kind: The class of the operator:

            - ``elementwise`` broadcasts all inputs, aligned to the right.
            - ``norm`` broadcasts like ``elementwise`` and normalizes along the last axis.
            - ``same`` keeps all sizes.
            - ``move`` permutes, inserts or removes axes of size 1.
            - ``copy`` repeats elements: Broadcast and Tile.
            - ``pad`` is Pad.
            - ``join`` is Concat; the effect applies to all inputs.
            - ``cut`` keeps a range.
            - ``part`` is Split.
            - ``take`` gathers entries by a scalar or a vector of indices, ``rows`` by a tensor of higher rank.
            - ``write`` is a scatter operator.
            - ``reduce`` is a reduction.
            - ``product`` replaces the last axis.
            - ``window`` is a convolution.
            - ``iteration`` slices a tensor for the iterations of a loop, or stacks their results.
        origins: For each axis of the output, the axis of the input that it comes from; ``None`` for a new axis.
        along: Axes of the output along which entries differ from the input's.
        removed: Axes of the input without a counterpart in the output.
    """

    kind: EffectKind
    origins: tuple[int | None, ...]
    along: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()


def axis_effect(node: Node, rank: int) -> AxisEffect | None:
    """Return the effect of an operator on the axes of its first input.

    Args:
        node: Any operator.
        rank: Rank of its output.

    Returns:
        The effect; ``None`` if it is unknown, and for Reshape, whose axes follow from sizes; see `axis_groups`.
    """
    rule = _RULES.get(node.op)
    return rule(node, rank) if rule is not None else None


_Rule: TypeAlias = Callable[[Node, int], AxisEffect | None]


def _keeping(kind: EffectKind) -> _Rule:
    return lambda _, rank: AxisEffect(kind, tuple(range(rank)))


def _everywhere(kind: EffectKind) -> _Rule:
    return lambda _, rank: AxisEffect(kind, tuple(range(rank)), tuple(range(rank)))


def _along(kind: EffectKind) -> _Rule:
    def rule(node: Node, rank: int) -> AxisEffect | None:
        axes = node.attributes.get("axes", ())
        if "axis" in node.attributes:
            axes = (node.attributes["axis"],)
        known = axes and all(-rank <= axis < rank for axis in axes)
        return AxisEffect(kind, tuple(range(rank)), tuple(axis % rank for axis in axes)) if known else None

    return rule


def _without(kind: EffectKind, axes: Iterable[int], rank: int) -> AxisEffect | None:
    removed = tuple(sorted(axes))
    kept = tuple(axis for axis in range(rank + len(removed)) if axis not in removed)
    return AxisEffect(kind, kept, removed=removed) if len(kept) == rank else None


def _transpose(node: Node, rank: int) -> AxisEffect | None:
    order = node.attributes.get("order", ())
    return AxisEffect("move", tuple(order)) if sorted(order) == list(range(rank)) else None


def _unsqueeze(node: Node, rank: int) -> AxisEffect | None:
    new, kept = node.attributes.get("axes"), iter(range(rank))
    if new is None:
        return None
    return AxisEffect("move", tuple(None if axis in new else next(kept) for axis in range(rank)))


def _reduce(node: Node, rank: int) -> AxisEffect | None:
    axes, source = node.attributes.get("axes"), node.inputs[0]
    if axes is None or source is None or source.rank is None:
        return None
    if source.rank == rank:
        return AxisEffect("reduce", tuple(range(rank)), tuple(axes))
    return _without("reduce", axes, rank)


def _gather(node: Node, rank: int) -> AxisEffect | None:
    axis, indices = node.attributes.get("axis"), node.inputs[1]
    if axis is None or indices is None or indices.rank is None:
        return None
    count = indices.rank - node.attributes.get("batch_dims", 0)
    if count == 0:
        return _without("take", (axis,), rank)
    if count == 1:
        return AxisEffect("take", tuple(range(rank)), (axis,))
    origins = (*range(axis), *(None,) * count, *range(axis + 1, rank + 1 - count))
    return AxisEffect("rows", origins, tuple(range(axis, axis + count)), (axis,))


def _broadcast(node: Node, rank: int) -> AxisEffect | None:
    source = node.inputs[0]
    if source is None or source.rank is None or source.rank > rank or node.attributes.get("mode") == "explicit":
        return None
    new = rank - source.rank
    return AxisEffect("copy", (*(None,) * new, *range(source.rank)), tuple(range(rank)))


def _tile(node: Node, rank: int) -> AxisEffect | None:
    source = node.inputs[0]
    return _everywhere("copy")(node, rank) if source is not None and source.rank == rank else None


def _strided_slice(node: Node, rank: int) -> AxisEffect | None:
    attributes, count = node.attributes, fixed_size(node.inputs[1], 0)
    if count is None or any(attributes["ellipsis_mask"]):
        return None
    steps = attributes.get("steps", ())
    origins: list[int | None] = []
    along, removed, axis = [], [], 0
    for index in range(count):
        if _is_set(attributes["new_axis_mask"], index):
            origins.append(None)
            continue
        if _is_set(attributes["shrink_axis_mask"], index):
            removed.append(axis)
        else:
            is_open = _is_set(attributes["begin_mask"], index) and _is_set(attributes["end_mask"], index)
            along += [] if is_open and steps[index : index + 1] == (1,) else [len(origins)]
            origins.append(axis)
        axis += 1
    origins += range(axis, axis + rank - len(origins))
    return AxisEffect("cut", tuple(origins), tuple(along), tuple(removed)) if len(origins) == rank else None


def _scatter_nd(node: Node, rank: int) -> AxisEffect | None:
    """Return a write along the indexed axes that the updates do not cover."""
    data, indices = node.inputs[0], node.inputs[1]
    depth = fixed_size(indices, -1)
    if data is None or indices is None or indices.shape is None or depth is None:
        return AxisEffect("write", tuple(range(rank)))
    axes, spread = range(min(depth, rank)), indices.shape[:-1]
    if data.shape is not None and len(spread) == depth:
        # The indices have one dimension for each indexed axis: a dimension of the axis's size covers the whole axis.
        partial = [axis for axis in axes if spread[axis] is None or spread[axis] != data.shape[axis]]
        return AxisEffect("write", tuple(range(rank)), tuple(partial or axes))
    return AxisEffect("write", tuple(range(rank)), tuple(axes))


def _sliced(node: Node, rank: int) -> AxisEffect | None:
    axis = node.attributes["axis"]
    if not node.attributes["keeps_axis"]:
        return _without("iteration", (axis,), rank)
    return AxisEffect("iteration", tuple(range(rank)), (axis,))


def _stacked(node: Node, rank: int) -> AxisEffect | None:
    axis = node.attributes["axis"]
    if node.attributes["keeps_axis"]:
        return AxisEffect("iteration", tuple(range(rank)), (axis,))
    return AxisEffect("iteration", (*range(axis), None, *range(axis, rank - 1)), (axis,))


def _product(_: Node, rank: int) -> AxisEffect | None:
    return AxisEffect("product", (*range(rank - 1), None), (rank - 1,))


def _integer_product(node: Node, rank: int) -> AxisEffect | None:
    weight = node.input(1)
    return _product(node, rank) if weight is not None and weight.rank == 2 else None


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(ELEMENTWISE | {"SquaredDifference"}, _keeping("elementwise")),
    **dict.fromkeys(NORMS, _keeping("norm")),
    **dict.fromkeys(
        (
            *("Softmax", "LogSoftmax", "CumSum", "Roll", "MVN", "Trilu", "ReverseSequence", "Carried", "Final"),
            *("QuantizeLinear", "DequantizeLinear", "FakeQuantize", "NormalizeL2", "Result", "Assign"),
            "DynamicQuantizeLinear",
            "RotaryEmbedding",
        ),
        _keeping("same"),
    ),
    **dict.fromkeys(SCATTERS | {"TensorScatter"}, _along("write")),
    "ScatterNDUpdate": _scatter_nd,
    **dict.fromkeys(SPLITS, _along("part")),
    "Concat": _along("join"),
    "Slice": _along("cut"),
    "StridedSlice": _strided_slice,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Squeeze": lambda node, rank: (
        _without("move", node.attributes["axes"], rank) if "axes" in node.attributes else None
    ),
    "Gather": _gather,
    "Broadcast": _broadcast,
    "Tile": _tile,
    "Pad": _everywhere("pad"),
    **dict.fromkeys(
        (
            f"Reduce{kind}"
            for kind in ("Mean", "Sum", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogicalAnd", "LogicalOr")
        ),
        _reduce,
    ),
    **dict.fromkeys(COMPRESSED_PRODUCTS, _product),
    "MatMulInteger": _integer_product,
    **dict.fromkeys(
        ("Convolution", "GroupConvolution", "Conv"),
        lambda _, rank: AxisEffect("window", (0, *(None,) * (rank - 1)), tuple(range(1, rank))),
    ),
    "Sliced": _sliced,
    "Stacked": _stacked,
}


AxisGroup: TypeAlias = tuple[list[int], list[int]]
"""Axes of the input and of the output of a Reshape that cover the same elements."""


def axis_groups(old: tuple[Dimension, ...], new: tuple[Dimension, ...]) -> list[AxisGroup] | None:
    """Group the axes of a Reshape's input and output that cover the same elements.

    For ``[2, 3, 8]`` and ``[6, 8]`` the groups are ``[2, 3] | [6]`` and ``[8] | [8]``. Axes of equal size are paired
    from the left up to the first difference, then from the right. Next, an axis is grouped with the axes whose product
    is its size. A single remaining axis is grouped with all remaining axes of the other shape; several are paired in
    order, except those of size 1.

    Args:
        old: Shape of the input.
        new: Shape of the output.

    Returns:
        The groups, from left to right; ``None`` if the shapes do not determine them.
    """
    left = _equal_run(old, new)
    right = min(_equal_run(old[::-1], new[::-1]), len(old) - left, len(new) - left)
    olds, news = list(range(left, len(old) - right)), list(range(left, len(new) - right))
    groups: list[AxisGroup] = []
    while len(olds) > 1 and len(news) > 1 and (group := _last_product(old, new, olds, news)) is not None:
        groups.insert(0, group)
        olds, news = olds[: -len(group[0])], news[: -len(group[1])]
    rest = _remainder(old, new, olds, news)
    if rest is None:
        return None
    tail: list[AxisGroup] = [([len(old) - step], [len(new) - step]) for step in range(right, 0, -1)]
    return [*(([axis], [axis]) for axis in range(left)), *rest, *groups, *tail]


def _equal_run(old: tuple[Dimension, ...], new: tuple[Dimension, ...]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _last_product(
    old: tuple[Dimension, ...], new: tuple[Dimension, ...], olds: list[int], news: list[int]
) -> AxisGroup | None:
    """Pair the last axis of one shape with the last axes of equal product.

    Returns:
        Axes of ``old`` and of ``new``, one of them a single axis; ``None`` if no products are equal.
    """
    for shape, axes, other_shape, other_axes in ((old, olds, new, news), (new, news, old, olds)):
        size, product = shape[axes[-1]], 1
        for count in range(1, len(other_axes) + 1):
            last = other_shape[other_axes[-count]]
            if not isinstance(size, int) or size <= 1 or not isinstance(last, int):
                break
            product *= last
            if product == size:
                single, several = axes[-1:], other_axes[-count:]
                return (single, several) if axes is olds else (several, single)
    return None


def _remainder(
    old: tuple[Dimension, ...], new: tuple[Dimension, ...], olds: list[int], news: list[int]
) -> list[AxisGroup] | None:
    if not olds or not news:
        # Axes left in one shape alone must have size 1.
        is_single = all(size == 1 for size in [*(old[axis] for axis in olds), *(new[axis] for axis in news)])
        return None if not is_single else [(olds, [])] if olds else []
    if len(olds) == 1 or len(news) == 1:
        return [(olds, news)]
    real_olds, real_news = [axis for axis in olds if old[axis] != 1], [axis for axis in news if new[axis] != 1]
    pairs = list(zip(real_olds, real_news, strict=False))
    is_equal = all(
        old[old_axis] == new[new_axis] or not isinstance(old[old_axis], int) or not isinstance(new[new_axis], int)
        for old_axis, new_axis in pairs
    )
    if len(real_olds) != len(real_news) or not is_equal:
        return None
    # Axes of size 1 may be inserted or removed; the other axes keep their order.
    partner = dict(pairs)
    return [([axis], [partner[axis]] if axis in partner else []) for axis in olds]


#: Slice bounds from this value on mean the end of the axis: the largest i32, which exporters write.
NO_END = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Cut:
    """The range of indices that a slice keeps along one axis.

    Attributes:
        axis: The sliced axis.
        start: First index, counted from the end if negative; ``None`` if computed.
        stop: Index after the last one, at least `NO_END` if unbounded; ``None`` if computed.
        step: Stride; ``None`` if computed.
        keeps_axis: Whether the output has the axis; ``False`` if the slice selects one index and removes the axis.
    """

    axis: int
    start: int | None
    stop: int | None
    step: int | None
    keeps_axis: bool = True

    @property
    def starts_at_first(self) -> bool:
        """Return whether the range starts at index 0 with step 1."""
        return self.start == 0 and self.step == 1

    @property
    def reaches_end(self) -> bool:
        """Return whether the range ends at the last index for every size of the axis."""
        return self.stop is not None and self.stop >= NO_END


def cuts(node: Node, read: Callable[[Value], numpy.ndarray | None]) -> tuple[Cut, ...]:
    """Return the ranges that a Slice or StridedSlice keeps; empty if unknown.

    Args:
        node: Any operator.
        read: Returns the elements of a bound; ``None`` if the bound is computed.
    """
    if node.op not in SLICES or len(node.inputs) < 3:
        return ()

    def numbers(port: int) -> tuple[int, ...] | None:
        value = node.input(port)
        constant = read(value) if value is not None else None
        return None if constant is None else tuple(int(number) for number in constant.reshape(-1))

    starts, stops = numbers(1), numbers(2)
    count = max(len(starts or ()), len(stops or ()))
    if node.op == "StridedSlice":
        return _strided(node, count, starts, stops, numbers(3) if node.input(3) is not None else (1,))
    steps_port = node.attributes["steps_port"]
    axes_port = 7 - steps_port
    steps = numbers(steps_port) if node.input(steps_port) is not None else (1,)
    axes = node.attributes.get("axes", numbers(axes_port) if node.input(axes_port) is not None else range(count))
    return tuple(
        Cut(axis, _at(starts, index), _at(stops, index), _at(steps, index)) for index, axis in enumerate(axes or ())
    )


def _at(numbers: tuple[int, ...] | None, index: int) -> int | None:
    """Return the bound at ``index``; a single bound applies to all axes."""
    return None if not numbers else numbers[index if len(numbers) > 1 else 0]


def _strided(node: Node, count: int, *bounds: tuple[int, ...] | None) -> tuple[Cut, ...]:
    attributes = node.attributes
    if any(attributes["new_axis_mask"]) or any(attributes["ellipsis_mask"]):
        return ()
    cuts = []
    for axis in range(count):
        start, stop, step = (_at(bound, axis) for bound in bounds)
        is_open = _is_set(attributes["begin_mask"], axis), _is_set(attributes["end_mask"], axis)
        if _is_set(attributes["shrink_axis_mask"], axis):
            stop = None if start is None else NO_END if start == -1 else start + 1
            cuts.append(Cut(axis, start, stop, 1, keeps_axis=False))
        elif any(is_open) and (step is None or step < 0):
            return ()
        else:
            cuts.append(Cut(axis, 0 if is_open[0] else start, NO_END if is_open[1] else stop, step))
    return tuple(cuts)


def _is_set(mask: list[int], axis: int) -> bool:
    return axis < len(mask) and bool(mask[axis])
