"""Keep the caches of a stateless model in memory from step to step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.runtime.sessions.inputs import Array


class CacheBuffer:
    """Swaps two memories: the past lies in one, the runtime fills the other.

    One memory cannot serve: operators that append read the past while they write, and place each head after all entries
    of the head before. The model copies a present once a step, the session never. Both memories double when outgrown.

    Attributes:
        content: Contents of the cache, a dense array.
    """

    def __init__(self, start: Array, sequence: int | None) -> None:
        """Hold ``start``, which belongs to the buffer from here on.

        Args:
            start: First contents.
            sequence: Axis of growth; ``None`` for a cache of fixed size.
        """
        self.content = np.ascontiguousarray(start)
        self._sequence = sequence
        # The whole allocations: `content` begins the first.
        self._memory = self.content.reshape(-1)
        self._spare = np.empty(0, self.content.dtype)

    def room(self, length: int) -> Array:
        """Return an array like `content` in the other memory, with ``length`` entries if growing."""
        shape = list(self.content.shape)
        if self._sequence is not None:
            shape[self._sequence] = length
        return self._room(shape)

    def written(self) -> None:
        """Hold the contents of the last `room`."""
        self.content = self._last
        self._memory, self._spare = self._spare, self._memory

    def hold(self, value: Array) -> None:
        """Hold ``value``, which belongs to the buffer from here on."""
        self.content = np.ascontiguousarray(value)
        self._memory = self.content.reshape(-1)

    def move(self, sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> int:
        """Move slots in place, and return the number of bytes moved."""
        assert self._sequence is not None
        return move_entries(self.content, self._sequence, sources, destinations)

    def gather(self, entries: NDArray[np.int64] | None, rows: NDArray[np.int64] | None, batch: int | None) -> int:
        """Keep only the named entries and rows, in that order.

        Args:
            entries: Indices along the sequence; ``None`` keeps all.
            rows: Indices along the batch; ``None`` keeps all.
            batch: Axis of the batch.

        Returns:
            Number of bytes moved.
        """
        moved = 0
        for chosen, axis in ((entries, self._sequence), (rows, batch)):
            if chosen is not None and axis is not None:
                shape = list(self.content.shape)
                shape[axis] = len(chosen)
                # Without a mode, numpy gathers into memory of its own first.
                np.take(self.content, chosen, axis=axis, out=self._room(shape), mode="clip")
                self.written()
                moved += self.content.nbytes
        return moved

    def _room(self, shape: list[int]) -> Array:
        size = math.prod(shape)
        if size > self._spare.size:
            self._spare = np.empty(max(size, 2 * self._memory.size), self.content.dtype)
        self._last = self._spare[:size].reshape(shape)
        return self._last


def move_entries(memory: Array, axis: int, sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> int:
    """Copy entries along ``axis`` in place as if at once, and return the bytes moved."""
    entries = np.moveaxis(memory, axis, 0)
    # Read whole before anything is overwritten.
    values = entries[sources]
    entries[destinations] = values
    return values.nbytes
