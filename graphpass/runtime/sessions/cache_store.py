"""Read, write and reorder the caches of a session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import UnsupportedError
from graphpass.ir.inputs import token_input
from graphpass.ir.values import fixed_size

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.inputs import Array


class CacheStore(ABC):
    """Reads, writes and reorders caches, and counts the bytes that it copies."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        windows = windowed(inventory)
        self._growing = tuple(cache for cache in inventory.of_kind("kv") if cache.name not in windows)
        # Entries that left a window do not come back, so such a cache is a state, whatever its size.
        self._fixed = tuple(
            cache
            for cache in inventory.caches
            if (cache.kind in {"linear", "other"} or cache.name in windows)
            and cache.write is not None
            and cache.role != "adapter"
        )
        # Rows of these can be gathered; what else an edit makes of them is not known.
        self._unsorted = tuple(cache for cache in inventory.of_kind("unknown") if cache.write is not None)
        self._adapters = tuple(cache for cache in inventory.caches if cache.role == "adapter")
        self._bytes_copied = 0
        # Whether entries of growing caches cannot be moved, or caches of fixed size not be read: tokens are fed again
        # then. Whether rows of growing caches can be gathered all the same; and whether the runtime mixes rows up.
        self._growing_sealed = self._fixed_sealed = self._gathers_rows = self._mixes_rows = False

    @abstractmethod
    def _forget(self) -> None:
        """Empty the caches."""

    @abstractmethod
    def _read(self, cache: Cache) -> Array:
        """Return the contents of a cache, perhaps the runtime's own memory."""

    @abstractmethod
    def _write(self, cache: Cache, value: Array) -> None:
        """Set a cache to ``value``, which belongs to the session from here on."""

    def _gather(self, entries: NDArray[np.int64] | None, rows: NDArray[np.int64] | None) -> None:
        """Keep these entries of growing caches, and these rows of all; ``None`` keeps everything."""
        for cache in self._inventory.caches:
            if cache in self._growing and entries is not None:
                assert cache.axes.sequence is not None
                value = self._read(cache).take(entries, axis=cache.axes.sequence)
            elif rows is not None and cache in (*self._growing, *self._fixed, *self._unsorted):
                value = self._read(cache)
            else:
                continue
            if rows is not None and cache.axes.batch is not None:
                value = value.take(rows, axis=cache.axes.batch)
            self._put(cache, value)

    def _read_fixed(self, rows: NDArray[np.int64] | None) -> dict[str, Array]:
        states = {}
        for cache in self._fixed:
            state, axis = self._read(cache), cache.axes.batch
            states[cache.name] = state.copy() if rows is None or axis is None else state.take(rows, axis)
        self._bytes_copied += sum(state.nbytes for state in states.values())
        return states

    def _put(self, cache: Cache, value: Array) -> None:
        self._bytes_copied += value.nbytes
        self._write(cache, value)


def caches_of(model: Model) -> Inventory:
    """Return the caches of ``model``, without batch axes of one row for all sequences."""
    inventory = model.analysis(analyze_caches)
    if fixed_size(token_input(model.graph), 0) is not None:
        return inventory
    return replace(inventory, caches=tuple(map(_without_fixed_rows, inventory.caches)))


def _without_fixed_rows(cache: Cache) -> Cache:
    axis = cache.axes.batch
    if cache.kind not in {"linear", "unknown"} or axis is None or cache.shape is None:
        return cache
    has_one = isinstance(cache.shape[axis], int)
    return replace(cache, axes=replace(cache.axes, batch=None)) if has_one else cache


def check_editable(inventory: Inventory, *, written_in_place: bool = False) -> None:
    """Refuse caches whose contents after an edit are not known.

    Args:
        inventory: The caches.
        written_in_place: Whether slot i of those of fixed capacity is known to hold position i.

    Raises:
        UnsupportedError: GP370, a cache of unknown kind, or one of kind ``kv`` that lacks entries of some positions,
            since it is of fixed capacity.
    """
    windows = windowed(inventory)
    for cache in inventory.caches:
        if cache.kind == "unknown":
            raise UnsupportedError("GP370", f"cannot edit cache {cache.name}: its kind is unknown")
        grows = written_in_place or (cache.axes.sequence is not None and not has_capacity(cache))
        if cache.kind == "kv" and cache.name not in windows and not grows:
            raise does_not_grow(cache)


def windowed(inventory: Inventory) -> frozenset[str | None]:
    """Return the names of the caches that keep no more than a window."""
    blocks = [block for block in inventory.attention if block.window_in == "state"]
    return frozenset(name for block in blocks for name in (block.key, block.value))


def has_capacity(cache: Cache) -> bool:
    """Return whether the sequence of ``cache`` has a fixed size."""
    axis = cache.axes.sequence
    return axis is not None and cache.shape is not None and isinstance(cache.shape[axis], int)


def does_not_grow(cache: Cache) -> UnsupportedError:
    """Return the error GP370 on a cache without one entry for each position."""
    return UnsupportedError("GP370", f"cannot edit cache {cache.name}: it does not grow by what is appended")
