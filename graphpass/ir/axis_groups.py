"""The groups of axes that a Reshape merges or splits."""

from __future__ import annotations

from itertools import takewhile
from typing import TypeAlias

from graphpass.ir.types import Dimension

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
        # Axes that only one shape has must have size 1.
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
