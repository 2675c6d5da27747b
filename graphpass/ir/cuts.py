"""The ranges of indices that slices keep along their axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.ir.graph import Node, Value
from graphpass.ir.operators import SLICES

if TYPE_CHECKING:
    import numpy

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
        is_open = is_set(attributes["begin_mask"], axis), is_set(attributes["end_mask"], axis)
        if is_set(attributes["shrink_axis_mask"], axis):
            stop = None if start is None else NO_END if start == -1 else start + 1
            cuts.append(Cut(axis, start, stop, 1, keeps_axis=False))
        elif any(is_open) and (step is None or step < 0):
            return ()
        else:
            cuts.append(Cut(axis, 0 if is_open[0] else start, NO_END if is_open[1] else stop, step))
    return tuple(cuts)


def is_set(mask: list[int], axis: int) -> bool:
    """Return whether a mask of a StridedSlice is 1 at an axis.

    Args:
        mask: The mask, such as ``begin_mask``; it may be shorter than the rank.
        axis: Index into the mask.
    """
    return axis < len(mask) and bool(mask[axis])
