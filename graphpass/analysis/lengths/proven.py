"""Prove which dimensions are equal; caches are if every step keeps them so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.sizes import Sizes
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Value
from graphpass.ir.model import Model

_Group: TypeAlias = "Callable[[Cache], int | None]"

#: Caches of one group are equally long; those of none have lengths of their own.
_GROUPS: tuple[_Group, ...] = (lambda _: 0, lambda cache: cache.layer)


def find_lengths(model: Model) -> Sizes:
    """Return the sizes that hold in every inference of ``model`` that succeeds.

    Caches of kind ``kv`` are equally long if every step appends equally many positions to each: they start empty, and
    runtimes feed stateless ones so. If that is not proven for all, it may be for those of a layer, which one attention
    reads. Added embeddings of tokens and positions are equally many. Bodies of If and Loop are not entered.
    """
    return model.analysis(_find)


def _find(model: Model) -> Sizes:
    for group in _GROUPS:
        pasts = _pasts(model, group)
        sizes = Sizes(model.graph, {place: dimension for place, (dimension, _) in pasts.items()})
        grown: dict[str, set[Expr | None]] = {}
        for (_, axis), (dimension, write) in pasts.items():
            shape = sizes.shape(write)
            grown.setdefault(dimension, set()).add(None if shape is None else shape[axis])
        if all(len(sizes) == 1 and None not in sizes for sizes in grown.values()):
            return sizes
    return Sizes(model.graph, {})


def _pasts(model: Model, group: _Group) -> dict[tuple[int, int], tuple[str, Value | None]]:
    """Map node index and axis of each past's positions to its dimension and present."""
    graph = model.graph
    return {
        (graph.reads[cache.read].index, cache.axes.sequence): (
            f"past {number}",
            None if write is None else write.source(),
        )
        for cache in analyze_caches(model).of_kind("kv")
        if (number := group(cache)) is not None and cache.axes.sequence is not None
        for write in [graph.writes.get(cache.write)]
    }
