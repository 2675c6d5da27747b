"""Layers that are alike, folded into one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.reports.flow import flow_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.model import Model
    from graphpass.reports.flow import Flow

__all__ = ["LayerGroup", "group_layers", "layers_in_words", "ranges"]


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers whose caches have the same kinds, roles, shapes and ways.

    Attributes:
        layers: Their numbers; empty for caches of unknown layer.
        lanes: The caches of the first of them, each with its way.
        members: The caches of all of them.
    """

    layers: tuple[int, ...]
    lanes: tuple[tuple[Cache, Flow], ...]
    members: tuple[Cache, ...]


def group_layers(model: Model, inventory: Inventory) -> tuple[LayerGroup, ...]:
    """The layers of ``model``, those that are alike together, in order of the first of each group."""
    layers: dict[int | None, list[Cache]] = {}
    for cache in inventory.caches:
        layers.setdefault(cache.layer, []).append(cache)
    groups: dict[object, list[tuple[int | None, list[tuple[Cache, Flow]]]]] = {}
    for layer, caches in layers.items():
        lanes = [(cache, flow_of(model, inventory, cache)) for cache in caches]
        groups.setdefault(tuple(_likeness(*lane) for lane in lanes), []).append((layer, lanes))
    return tuple(
        LayerGroup(
            layers=tuple(layer for layer, _ in group if layer is not None),
            lanes=tuple(group[0][1]),
            members=tuple(cache for _, lanes in group for cache, _ in lanes),
        )
        for group in groups.values()
    )


def _likeness(cache: Cache, flow: Flow) -> object:
    ways = tuple(tuple(stop.op for stop in stops) for stops in (flow.update, flow.reading))
    shape = tuple(dimension if isinstance(dimension, int) else None for dimension in cache.shape or ())
    return cache.kind, cache.role, cache.axes, cache.element_type, shape, ways


def ranges(numbers: Iterable[int]) -> str:
    """Rising numbers for people: ``0-3, 5, 7-8``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def layers_in_words(layers: Iterable[int | None]) -> str:
    """``layers 0-3, 5``; ``no layer`` where none is known."""
    known = sorted({layer for layer in layers if layer is not None})
    if not known:
        return "no layer"
    return f"layer {known[0]}" if len(known) == 1 else f"layers {ranges(known)}"
