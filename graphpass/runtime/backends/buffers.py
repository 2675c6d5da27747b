"""Buffers for the caches of stateless models."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.runtime.sessions.inputs import Array


class CacheBuffer:
    """Two alternating buffers: one has the past, the runtime writes the present into the other.

    One buffer is not sufficient: operators that append read the past while they write, and the offset of each head
    grows with the sequence. The model copies a present once per step; the session does not copy it. Buffers that become
    too small are replaced by buffers of at least twice the size.

    Attributes:
        content: Contents of the cache, a dense array.
    """

    def __init__(self, start: Array, sequence: int | None) -> None:
        """Store ``start``, which the caller must not change afterwards.

        Args:
            start: Initial contents.
            sequence: The growing axis; ``None`` for a cache of fixed size.
        """
        self.content = np.ascontiguousarray(start)
        self._sequence = sequence
        # The allocations; `content` is the beginning of the first.
        self._memory = self.content.reshape(-1)
        self._spare = np.empty(0, self.content.dtype)

    def room(self, length: int) -> Array:
        """Return the other buffer in the shape of `content`, with ``length`` entries if growing."""
        shape = list(self.content.shape)
        if self._sequence is not None:
            shape[self._sequence] = length
        return self._room(shape)

    def written(self) -> None:
        """Set `content` to the buffer that the last `room` returned."""
        self.content = self._last
        self._memory, self._spare = self._spare, self._memory

    def hold(self, value: Array) -> None:
        """Replace the contents of the cache.

        Args:
            value: New contents in the cache's axes and element type; the caller must not change the array afterwards.
        """
        self.content = np.ascontiguousarray(value)
        self._memory = self.content.reshape(-1)

    def move(self, sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> int:
        """Move entries of a growing cache in place.

        Args:
            sources: Indices of the entries along the sequence axis, int64 [n].
            destinations: New index of each entry, int64 [n].

        Returns:
            The number of bytes moved.
        """
        assert self._sequence is not None
        return move_entries(self.content, self._sequence, sources, destinations)

    def gather(self, entries: NDArray[np.int64] | None, rows: NDArray[np.int64] | None, batch: int | None) -> int:
        """Gather entries and rows.

        Args:
            entries: Indices along the sequence axis, int64 [length]; ``None`` keeps all.
            rows: Indices along the batch axis, int64 [batch]; ``None`` keeps all.
            batch: The batch axis.

        Returns:
            Number of bytes moved.
        """
        moved = 0
        for chosen, axis in ((entries, self._sequence), (rows, batch)):
            if chosen is not None and axis is not None:
                shape = list(self.content.shape)
                shape[axis] = len(chosen)
                # In its default mode, numpy gathers into a temporary array first.
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
    """Copy entries in place, reading all before writing.

    Args:
        memory: Contents of a cache.
        axis: The sequence axis of ``memory``.
        sources: Indices of the entries along ``axis``, int64 [n].
        destinations: New index of each entry, int64 [n].

    Returns:
        The number of bytes moved.
    """
    entries = np.moveaxis(memory, axis, 0)
    # Indexing copies the entries before any is overwritten.
    values = entries[sources]
    entries[destinations] = values
    return values.nbytes
