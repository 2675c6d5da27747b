"""What the axes of a tensor mean before a Reshape, told from what they mean behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.ir.types import Dimension

if TYPE_CHECKING:
    from graphpass.ir.graph import Value

__all__ = ["Label", "Labels", "copies_merged", "regroup"]


Label = str | int | None | tuple[str | int | None, ...]
Labels = tuple[Label, ...]


def regroup(source: Value, result: Value, labels: Labels) -> Labels | None:
    """Labels of ``source``, of which ``result`` with ``labels`` is a Reshape.

    The dimensions of both are cut into the smallest groups that hold the same elements: ``[2, 3, 8]`` and ``[6, 8]``
    are ``[2, 3] | [8]`` and ``[6] | [8]``. Where a size is unknown, what is left over on both sides is one group.

    Returns:
        The labels: a tuple for an axis that the Reshape takes apart; ``None`` where the groups cannot be told.
    """
    if source.shape is None or result.shape is None or len(result.shape) != len(labels):
        return None
    groups = _groups(source.shape, result.shape)
    if groups is None:
        return copies_merged(len(source.shape), labels)
    inside: list[Label] = []
    for olds, news in groups:
        given = [labels[axis] for axis in news]
        if len(olds) == 1 and news:
            real = [label for axis, label in zip(news, given, strict=True) if result.shape[axis] != 1]
            inside.append(_merged(real if len(news) > 1 else given))
        elif len(news) == 1:
            inside.extend(_taken_apart(source.shape, olds, given[0]))
        elif not news:
            inside.extend([None] * len(olds))
        else:
            return None
    return tuple(inside)


def copies_merged(rank: int, labels: Labels) -> Labels | None:
    """Of unknown sizes, one axis more than behind the Reshape: the copies of each head, of which it makes heads."""
    if "heads" not in labels or rank != len(labels) + 1:
        return None
    heads = labels.index("heads")
    return (*labels[: heads + 1], None, *labels[heads + 1 :])


def _merged(labels: list[Label]) -> Label:
    if len(labels) == 1:
        return labels[0]
    flat: list[str | int | None] = []
    for label in labels:
        flat.extend(label if isinstance(label, tuple) else [label])
    return tuple(flat) or None


def _taken_apart(shape: tuple[Dimension, ...], axes: list[int], label: Label) -> list[Label]:
    """The labels of axes that the Reshape merges into one with ``label``."""
    if isinstance(label, tuple) and len(label) == len(axes):
        return list(label)
    if label == "rows" and len(axes) == 2:
        return ["batch", "heads"]
    real = [axis for axis in axes if shape[axis] != 1]
    if len(real) == 1:
        return [label if axis == real[0] else None for axis in axes]
    # Copies of heads stand behind the head that they copy.
    return [label if place == 0 and label == "heads" else None for place in range(len(axes))]


_Group = tuple[list[int], list[int]]


def _groups(old: tuple[Dimension, ...], new: tuple[Dimension, ...]) -> list[_Group] | None:
    """Axes that hold the same elements, from the left up to what is not plain, then from the right."""
    left = _equal_run(old, new)
    rest = min(len(old), len(new)) - left
    right = min(_equal_run(old[::-1], new[::-1]), rest)
    groups: list[_Group] = [([axis], [axis]) for axis in range(left)]
    middle = list(range(left, len(old) - right)), list(range(left, len(new) - right))
    split = _middle(old, new, *middle)
    if split is None:
        return None
    tail: list[_Group] = [([len(old) - right + step], [len(new) - right + step]) for step in range(right)]
    return groups + split + tail


def _equal_run(old: tuple[Dimension, ...], new: tuple[Dimension, ...]) -> int:
    count = 0
    for first, second in zip(old, new, strict=False):
        if first != second:
            break
        count += 1
    return count


def _middle(
    old: tuple[Dimension, ...], new: tuple[Dimension, ...], olds: list[int], news: list[int]
) -> list[_Group] | None:
    groups: list[_Group] = []
    while len(olds) > 1 and len(news) > 1 and (group := _last_product(old, new, olds, news)) is not None:
        groups.insert(0, group)
        olds, news = olds[: len(olds) - len(group[0])], news[: len(news) - len(group[1])]
    rest = _remainder(old, new, olds, news)
    return None if rest is None else rest + groups


def _last_product(
    old: tuple[Dimension, ...], new: tuple[Dimension, ...], olds: list[int], news: list[int]
) -> _Group | None:
    """The last axes of both that hold equally many elements, one axis on one of the sides."""
    for one, ones, many, others in ((old, olds, new, news), (new, news, old, olds)):
        size = one[ones[-1]]
        product = 1
        for count in range(1, len(others) + 1):
            last = many[others[-count]]
            if not isinstance(size, int) or size <= 1 or not isinstance(last, int):
                break
            product *= last
            if product == size:
                single, several = ones[-1:], others[-count:]
                return (single, several) if one is old and ones is olds else (several, single)
    return None


def _remainder(
    old: tuple[Dimension, ...], new: tuple[Dimension, ...], olds: list[int], news: list[int]
) -> list[_Group] | None:
    if not olds or not news:
        # Nothing but axes of one element may stand alone.
        alone = [old[axis] for axis in olds] + [new[axis] for axis in news]
        if any(size != 1 for size in alone):
            return None
        return [(olds, [])] if olds else []
    if len(olds) == 1 or len(news) == 1:
        return [(olds, news)]
    real_olds, real_news = [axis for axis in olds if old[axis] != 1], [axis for axis in news if new[axis] != 1]
    if len(real_olds) != len(real_news):
        return None
    # Axes of one element come and go; the others keep their order.
    groups = [([axis], [] if old[axis] == 1 else [real_news.pop(0)]) for axis in olds]
    return groups if all(_may_be_equal(old, new, group) for group in groups) else None


def _may_be_equal(old: tuple[Dimension, ...], new: tuple[Dimension, ...], group: _Group) -> bool:
    sizes = {old[axis] for axis in group[0]} | {new[axis] for axis in group[1]}
    return len({size for size in sizes if isinstance(size, int)}) <= 1
