"""`HeldCaches`: what the caches of a session hold, entry by entry and row by row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from graphpass.ir.cache import Cache, Inventory
    from graphpass.runtime.sessions.inputs import Array

__all__ = ["HeldCaches"]


class HeldCaches(ABC):
    """Caches whose contents are read, put back, and taken in another order; what that copies is counted."""

    def __init__(self, inventory: Inventory) -> None:
        """Without tokens.

        Args:
            inventory: The caches.
        """
        self._inventory = inventory
        self._growing = inventory.of_kind("kv")
        self._fixed = tuple(
            cache
            for cache in inventory.of_kind("linear", "other")
            if cache.write is not None and cache.role != "adapter"
        )
        self._bytes_copied = 0

    @abstractmethod
    def _forget(self) -> None:
        """Empty the caches."""

    @abstractmethod
    def _read(self, cache: Cache) -> Array:
        """What a cache holds, perhaps the very memory in which the runtime keeps it."""

    @abstractmethod
    def _write(self, cache: Cache, value: Array) -> None:
        """Let a cache hold ``value``, which belongs to the session from here on."""

    def _gather(self, entries: NDArray[np.int64] | None, rows: NDArray[np.int64] | None) -> None:
        """Let the caches hold these entries of the growing ones, and these rows of all; ``None``: those they hold."""
        for cache in self._inventory.caches:
            if cache in self._growing and entries is not None:
                assert cache.axes.sequence is not None
                value = self._read(cache).take(entries, axis=cache.axes.sequence)
            elif rows is not None and (cache in self._growing or cache in self._fixed):
                value = self._read(cache)
            else:
                continue
            if rows is not None and cache.axes.batch is not None:
                value = value.take(rows, axis=cache.axes.batch)
            self._put(cache, value)

    def _read_fixed(self, rows: NDArray[np.int64] | None) -> dict[str, Array]:
        """Copies of the caches of fixed size, by name, of these rows; ``None``: those they hold."""
        states = {}
        for cache in self._fixed:
            state, axis = self._read(cache), cache.axes.batch
            states[cache.name] = state.copy() if rows is None or axis is None else state.take(rows, axis)
        self._bytes_copied += sum(state.nbytes for state in states.values())
        return states

    def _put(self, cache: Cache, value: Array) -> None:
        self._bytes_copied += value.nbytes
        self._write(cache, value)
