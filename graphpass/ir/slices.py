"""Read the ranges that slices keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.ir.graph import Node, Value
from graphpass.ir.operators import SLICES

if TYPE_CHECKING:
    import numpy

__all__ = ["NO_END", "Cut", "cuts"]

#: The least number by which exporters mean the end: the highest i32.
NO_END = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Cut:
    """Range of places that a slice keeps along one axis; ``None`` for a bound that is computed.

    Attributes:
        axis: The axis.
        start: The first place; counted from the end if negative.
        stop: The place after the last one; at least `NO_END` if there is no other bound.
        step: Distance of neighbours.
        keeps_axis: Whether the axis stays; one that goes had one place.
    """

    axis: int
    start: int | None
    stop: int | None
    step: int | None
    keeps_axis: bool = True

    @property
    def starts_at_first(self) -> bool:
        """Whether the first place is kept."""
        return self.start == 0 and self.step == 1

    @property
    def reaches_end(self) -> bool:
        """Whether nothing bounds the places from above."""
        return self.stop is not None and self.stop >= NO_END


def cuts(node: Node, read: Callable[[Value], numpy.ndarray | None]) -> tuple[Cut, ...]:
    """Return the range that a Slice or StridedSlice keeps along each axis; none if that is not known.

    Args:
        node: Any operator.
        read: Reads a bound; returns ``None`` if it is computed.
    """
    if node.op not in SLICES or len(node.inputs) < 3:
        return ()

    def numbers(port: int) -> tuple[int, ...] | None:
        value = node.input(port)
        held = read(value) if value is not None else None
        return None if held is None else tuple(int(number) for number in held.reshape(-1))

    starts, stops = numbers(1), numbers(2)
    count = max(len(starts or ()), len(stops or ()))
    if node.op == "StridedSlice":
        return _strided(node, count, starts, stops, numbers(3) if node.input(3) is not None else (1,))
    steps_port = node.attributes["steps_port"]
    axes_port = 7 - steps_port
    steps = numbers(steps_port) if node.input(steps_port) is not None else (1,)
    axes = node.attributes.get("axes", numbers(axes_port) if node.input(axes_port) is not None else range(count))
    return tuple(
        Cut(axis, _at(starts, place), _at(stops, place), _at(steps, place)) for place, axis in enumerate(axes or ())
    )


def _at(numbers: tuple[int, ...] | None, place: int) -> int | None:
    """Return the number at ``place``; a single one holds for all."""
    return None if not numbers else numbers[place if len(numbers) > 1 else 0]


def _strided(node: Node, count: int, *bounds: tuple[int, ...] | None) -> tuple[Cut, ...]:
    """Return the cuts of an OpenVINO StridedSlice, whose masks lift bounds."""
    given = node.attributes
    if any(given["new_axis_mask"]) or any(given["ellipsis_mask"]):
        return ()
    found = []
    for axis in range(count):
        start, stop, step = (_at(bound, axis) for bound in bounds)
        is_open = _is_set(given["begin_mask"], axis), _is_set(given["end_mask"], axis)
        if _is_set(given["shrink_axis_mask"], axis):
            stop = None if start is None else NO_END if start == -1 else start + 1
            found.append(Cut(axis, start, stop, 1, keeps_axis=False))
        elif any(is_open) and (step is None or step < 0):
            return ()
        else:
            found.append(Cut(axis, 0 if is_open[0] else start, NO_END if is_open[1] else stop, step))
    return tuple(found)


def _is_set(mask: list[int], axis: int) -> bool:
    return axis < len(mask) and bool(mask[axis])
