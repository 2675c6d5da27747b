"""`CacheBuffer`: memory in which a stateless model's caches stay from step to step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.runtime.sessions.inputs import Array

__all__ = ["CacheBuffer", "move_entries"]


class CacheBuffer:
    """Two memories for one cache: the past lies in one, the runtime writes the present into the other.

    They cannot be one: operators that join past and new entries read the past while they write, and place each head
    behind all entries of the head before it. So a present is copied once a step, by the model, and never by the
    session; the next past is read where the present was written. Both memories double when the present outgrows them,
    which copies nothing either, because what they held is in the other one.

    Attributes:
        held: What the cache holds, a dense array.
    """

    def __init__(self, start: Array, sequence: int | None) -> None:
        """Take ``start`` for what the cache holds.

        Args:
            start: Belongs to the buffer from here on.
            sequence: The axis along which the cache grows; ``None`` for one that does not.
        """
        self.held = np.ascontiguousarray(start)
        self._sequence = sequence
        # All of the memory that `held` is the beginning of, and all of the other one.
        self._memory = self.held.reshape(-1)
        self._spare = np.empty(0, self.held.dtype)

    def room(self, length: int) -> Array:
        """A dense array in the other memory, like `held`, but of ``length`` entries if the cache grows."""
        shape = list(self.held.shape)
        if self._sequence is not None:
            shape[self._sequence] = length
        return self._room(shape)

    def written(self) -> None:
        """Hold what was written into the last `room`."""
        self.held = self._last
        self._memory, self._spare = self._spare, self._memory

    def hold(self, value: Array) -> None:
        """Hold ``value``, which belongs to the buffer from here on."""
        self.held = np.ascontiguousarray(value)
        self._memory = self.held.reshape(-1)

    def move(self, sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> int:
        """Let entries take the old values of others, in place, and tell how many bytes were moved."""
        assert self._sequence is not None
        return move_entries(self.held, self._sequence, sources, destinations)

    def gather(self, entries: NDArray[np.int64] | None, rows: NDArray[np.int64] | None, batch: int | None) -> int:
        """Hold only these entries and rows, in this order; all where none are given.

        Args:
            entries: Along the sequence.
            rows: Along the batch.
            batch: That axis.

        Returns:
            How many bytes were moved.
        """
        moved = 0
        for chosen, axis in ((entries, self._sequence), (rows, batch)):
            if chosen is not None and axis is not None:
                shape = list(self.held.shape)
                shape[axis] = len(chosen)
                # Without a mode, numpy would gather into memory of its own first.
                np.take(self.held, chosen, axis=axis, out=self._room(shape), mode="clip")
                self.written()
                moved += self.held.nbytes
        return moved

    def _room(self, shape: list[int]) -> Array:
        size = math.prod(shape)
        if size > self._spare.size:
            self._spare = np.empty(max(size, 2 * self._memory.size), self.held.dtype)
        self._last = self._spare[:size].reshape(shape)
        return self._last


def move_entries(memory: Array, axis: int, sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> int:
    """Let entries along ``axis`` take the old values of others, in place, and tell how many bytes were moved."""
    entries = np.moveaxis(memory, axis, 0)
    # What is moved is read as a whole before any of it is overwritten.
    values = entries[sources]
    entries[destinations] = values
    return values.nbytes
