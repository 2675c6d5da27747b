"""Which caches a session may edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.errors import UnsupportedError

if TYPE_CHECKING:
    from graphpass.ir.cache import Cache, Inventory

__all__ = ["check_editable", "does_not_grow", "windowed"]


def check_editable(inventory: Inventory, *, written_in_place: bool = False) -> None:
    """Refuse caches of which it is not known what edits would leave of them.

    Args:
        inventory: The caches.
        written_in_place: Whether slot i of those of fixed capacity is known to hold position i.

    Raises:
        UnsupportedError: GP370, a cache of unknown kind, or one of kind ``kv`` whose entries are not those of all
            positions: of fixed capacity, or that keeps a window.
    """
    windows = windowed(inventory)
    for cache in inventory.caches:
        if cache.kind == "unknown":
            raise UnsupportedError("GP370", f"cannot edit cache {cache.name}: its kind is unknown")
        if cache.kind == "kv" and (cache.name in windows or not (written_in_place or _may_grow(cache))):
            raise does_not_grow(cache)


def windowed(inventory: Inventory) -> frozenset[str | None]:
    """Names of the caches that keep no more than a window."""
    blocks = [block for block in inventory.attention if block.window_in == "state"]
    return frozenset(name for block in blocks for name in (block.key, block.value))


def does_not_grow(cache: Cache) -> UnsupportedError:
    """The error GP370 of a cache that does not hold one entry for each position."""
    return UnsupportedError("GP370", f"cannot edit cache {cache.name}: it does not grow by what is appended")


def _may_grow(cache: Cache) -> bool:
    axis = cache.axes.sequence
    return axis is not None and not (cache.shape is not None and isinstance(cache.shape[axis], int))
