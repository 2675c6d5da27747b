"""Proof of equal dimensions; caches have equal lengths if every step appends equally many positions."""

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

#: Assumptions to prove, in order: caches with an equal key have equal lengths; ``None`` for a separate length.
_GROUPS: tuple[_Group, ...] = (lambda _: 0, lambda cache: cache.layer)


def find_lengths(model: Model) -> Sizes:
    """Return the sizes that hold in every successful inference of ``model``.

    Caches of kind ``kv`` have equal lengths if every step appends equally many positions to each, because they start
    empty. If this is not proven for all caches, it is tried for the caches of each layer. Embeddings of tokens and of
    positions that are added have equal sizes. Bodies of If and Loop are ignored.
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
    """Return dimension and present of each past, by node index and sequence axis."""
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
