"""Run models with caches of fixed capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphpass.errors import UnsupportedError
from graphpass.runtime.backends.buffers import move_entries
from graphpass.runtime.sessions.cache_store import CacheStore, check_editable, require_room
from graphpass.runtime.sessions.inputs import Array, numpy_type, require_written

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.model import Model


class FixedCapacityStore(CacheStore):
    """One buffer per cache; slot i of each growing cache holds position i.

    Tokens that do not fit raise an error before anything is overwritten.

    Attributes:
        capacity: Number of positions that fit.
        prompt: Most tokens of a prompt.
        buffers: Buffer of each cache in its shape, by the name of its past input.
    """

    #: A step overwrites trimmed entries, so none are wasted.
    steps_per_copy = 0.0

    sees_entries = True

    def __init__(self, model: Model, inventory: Inventory, capacity: int, prompt: int) -> None:
        """Plan the feeds; subclasses allocate buffers. Raises as `graphpass.runtime.open_session`."""
        super().__init__(model, inventory)
        self.capacity, self.prompt = capacity, prompt
        self.buffers: dict[str, Array] = {}
        # Number of written entries of growing caches; later entries are finite.
        self._end = 0
        for cache in inventory.caches:
            require_written(cache)

    def check_room(self, count: int, length: int) -> None:
        require_room(count, length, self.capacity if length else self.prompt)

    def read(self, cache: Cache) -> Array:
        memory = self.buffers[cache.read]
        return part(memory, cache, 0, self._end) if cache.kind == "kv" else memory

    def write(self, cache: Cache, value: Array) -> None:
        memory, axis = self.buffers[cache.read], cache.axes.sequence
        if cache.kind != "kv" or axis is None:
            memory[...] = value
            return
        length = value.shape[axis]
        part(memory, cache, 0, length)[...] = value
        self._clear(cache, length)
        self._end = max(self._end, length)

    def _clear(self, cache: Cache, start: int) -> None:
        """Zero the entries from ``start`` on, since a masked NaN makes attention NaN."""
        part(self.buffers[cache.read], cache, start, self._end)[...] = 0

    def move(self, sources: NDArray[np.int64], destinations: NDArray[np.int64], size: int) -> None:
        self._end = max(self._end, size)
        self._move(sources, destinations)

    def gather(self, entries: NDArray[np.int64] | None, rows: NDArray[np.int64] | None) -> None:
        if entries is not None:
            moved = np.flatnonzero(entries != np.arange(len(entries)))
            self._move(entries[moved], moved)
            for cache in self.growing:
                self._clear(cache, len(entries))
            self._end = len(entries)
        if rows is not None:
            super().gather(None, rows)

    def _move(self, sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> None:
        """Copy entries of growing caches; all are read before any is written."""
        for cache in self.growing if len(sources) else ():
            assert cache.axes.sequence is not None
            self.bytes_copied += move_entries(self.buffers[cache.read], cache.axes.sequence, sources, destinations)

    def check_editable(self) -> None:
        check_editable(self.inventory, written_in_place=True)


def cache_memory(cache: Cache, batch: int, capacity: int | None = None) -> Array:
    """Return zeros in the shape and element type of ``cache``.

    Args:
        cache: The cache.
        batch: Size of the batch axis, if the cache has one.
        capacity: Size of the sequence axis; ``None`` for the size in the cache's shape.

    Raises:
        UnsupportedError: GP320, a dimension is unknown.
    """
    free = {cache.axes.batch: batch} | ({} if capacity is None else {cache.axes.sequence: capacity})
    shape = [free.get(axis, size) for axis, size in enumerate(cache.shape or (None,))]
    known = [size for size in shape if isinstance(size, int)]
    if len(known) != len(shape):
        raise UnsupportedError("GP320", f"cannot determine the size of cache {cache.name} {shape}")
    return np.zeros(known, numpy_type(cache.element_type, f"cache {cache.name}"))


def part(memory: Array, cache: Cache, start: int, stop: int) -> Array:
    """Return a view of entries of a growing cache, along its sequence axis.

    Args:
        memory: Contents of the cache.
        cache: The cache, whose sequence axis is known.
        start: The first entry.
        stop: The end of the entries, exclusive.
    """
    assert cache.axes.sequence is not None
    return memory[(slice(None),) * cache.axes.sequence + (slice(start, stop),)]
