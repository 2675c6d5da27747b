"""The map from axes of an operator's first input to axes of its output.

Size inference, axis labels and layout propagation share this table. It excludes sizes that depend on elements of
inputs.

Sources: the operator specifications of ONNX and of OpenVINO's opset13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from graphpass.ir.cuts import is_set
from graphpass.ir.graph import Node
from graphpass.ir.operators import COMPRESSED_PRODUCTS, ELEMENTWISE, NORMS, SCATTERS, SPLITS, is_foreign
from graphpass.ir.values import fixed_size

if TYPE_CHECKING:
    pass


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
    rule = None if is_foreign(node) else _RULES.get(node.op)
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
    if source is None or source.rank is None or source.rank > rank or len(node.inputs) > 2:
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
        if is_set(attributes["new_axis_mask"], index):
            origins.append(None)
            continue
        if is_set(attributes["shrink_axis_mask"], index):
            removed.append(axis)
        else:
            is_open = is_set(attributes["begin_mask"], index) and is_set(attributes["end_mask"], index)
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
