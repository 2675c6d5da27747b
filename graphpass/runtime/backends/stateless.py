"""Sessions that carry the caches themselves, from present outputs to past inputs."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from graphpass.errors import UnsupportedError
from graphpass.runtime.backends.buffers import CacheBuffer
from graphpass.runtime.sessions.editable import does_not_grow, windowed
from graphpass.runtime.sessions.inputs import Array, Step, numpy_type, shape_text
from graphpass.runtime.sessions.session import DecodeSession
from graphpass.runtime.sessions.slots import newest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.slots import Slots

__all__ = ["StatelessSession"]


class StatelessSession(DecodeSession):
    """Has each present output written where the next step's past input is read.

    The first forward pass shows whether presents are as long as past and new tokens together. Where one is not, the
    runtime says how long it gets, and where it is written. A model without caches gets the whole history at every step,
    and its outputs are cut to the new tokens.
    """

    #: A step copies the whole past, so waste is as dear as gathering. Measured at 512 to 4096 entries of 8 layers: 14
    #: to 30 us a wasted entry and step, 0.5 to 4 us an entry gathered, on ONNX Runtime and OpenVINO alike.
    _steps_per_copy = 0.1

    def __init__(self, model: Model, inventory: Inventory) -> None:
        """Work out what an empty past looks like.

        Args:
            model: What to run.
            inventory: Its caches.

        Raises:
            UnsupportedError: GP320, an input or a cache that cannot be fed.
        """
        super().__init__(model, inventory)
        least = _least_lengths(inventory)
        self._starts = {cache: _Start(cache, least.get(cache.name, 0)) for cache in inventory.caches}
        # ONNX Runtime runs no row with such a cache that has fewer tokens than others.
        self.takes_mask = self.takes_mask and not least
        self._buffers: dict[str, CacheBuffer] = {}
        self._foreseen: frozenset[str] = frozenset()
        windows = windowed(inventory)
        # A cache of fixed capacity is as long as past and new tokens together only when it is full.
        self._foreseeable = tuple(
            cache for cache in inventory.caches if cache.name not in windows and not _has_capacity(cache)
        )

    @abstractmethod
    def _infer(self, feeds: dict[str, Array], rooms: dict[str, Array]) -> dict[str, Array]:
        """Run the model.

        Args:
            feeds: All inputs by name.
            rooms: Outputs that are to be written there, by name.

        Returns:
            The other outputs by name, as arrays of their own.
        """

    def _run(self, step: Step) -> dict[str, Array]:
        if not self._starts:
            return self._replay(step)
        self._make_buffers(step.batch)
        past = {cache.read: self._buffers[cache.name].held for cache in self._starts}
        rooms = {cache.write: self._buffers[cache.name].room(step.past + step.length) for cache in self._foreseeable}
        promised = {name: room for name, room in rooms.items() if name in self._foreseen}
        results = self._infer(self._inputs.feeds(step) | past, promised)
        self._foreseen |= {
            name for name, room in rooms.items() if name in results and results[name].shape == room.shape
        }
        for cache in self._starts:
            if cache.write in promised:
                self._buffers[cache.name].written()
            elif cache.write is not None:
                self._buffers[cache.name].hold(results[cache.write])
                self._bytes_copied += results[cache.write].nbytes
        return {name: results[name] for name in self.outputs}

    def _make_buffers(self, batch: int) -> None:
        """Have buffers, empty ones where there are none."""
        self._buffers = self._buffers or {
            cache.name: CacheBuffer(start.past(batch), cache.axes.sequence) for cache, start in self._starts.items()
        }

    def _replay(self, step: Step) -> dict[str, Array]:
        assert self._slots is not None
        whole = self._slots.tokens()
        feeds = self._inputs.feeds(Step(whole.ids, whole.mask, whole.positions, 0, None, step.tree_mask))
        results = self._infer(feeds, {})
        return newest([{name: results[name] for name in self.outputs}], [whole.length], step.length)

    def _forget(self) -> None:
        self._buffers = {}

    def _read(self, cache: Cache) -> Array:
        return self._buffers[cache.name].held

    def _write(self, cache: Cache, value: Array) -> None:
        assert self._slots is not None
        self._make_buffers(self._slots.batch)
        self._buffers[cache.name].hold(value)

    def _check_editable(self) -> None:
        super()._check_editable()
        for cache in self._growing if self._buffers else ():
            if cache.write not in self._foreseen:
                raise does_not_grow(cache)

    def _sort(self, slots: Slots) -> None:
        self._copy_snapshots()
        sources, destinations = slots.sort()
        for cache in self._growing:
            self._bytes_copied += self._buffers[cache.name].move(sources, destinations)

    def _gather(self, entries: NDArray[np.int64] | None, rows: NDArray[np.int64] | None) -> None:
        for cache in (*self._growing, *self._fixed):
            buffer = self._buffers[cache.name]
            self._bytes_copied += buffer.gather(entries if cache in self._growing else None, rows, cache.axes.batch)


def _least_lengths(inventory: Inventory) -> dict[str, int]:
    """Of caches that are no shorter than a window from the start, as GroupQueryAttention's sliding_window_cache is."""
    return {
        name: block.window
        for block in inventory.attention
        if block.window_in == "state" and block.form == "GroupQueryAttention" and block.window is not None
        for name in (block.key, block.value)
        if name is not None
    }


def _has_capacity(cache: Cache) -> bool:
    axis = cache.axes.sequence
    return axis is not None and cache.shape is not None and isinstance(cache.shape[axis], int)


class _Start:
    """What a cache holds before the first token."""

    def __init__(self, cache: Cache, length: int) -> None:
        if cache.write is None:
            raise UnsupportedError("GP320", f"cache {cache.name} is only read: another model has to compute it")
        self._dtype = numpy_type(cache.element_type, f"cache {cache.name}")
        self._batch_axis = cache.axes.batch
        self._shape = _empty_shape(cache, length)

    def past(self, batch: int) -> Array:
        shape = list(self._shape)
        if self._batch_axis is not None:
            shape[self._batch_axis] = batch
        return np.zeros(shape, self._dtype)


def _empty_shape(cache: Cache, length: int) -> tuple[int, ...]:
    """The shape before the first step: of ``length`` along the sequence, unless the cache's capacity is fixed."""
    free = {cache.axes.batch: 0, cache.axes.sequence: length}
    shape = tuple(
        free.get(axis, size) if axis == cache.axes.batch or not isinstance(size, int) else size
        for axis, size in enumerate(cache.shape or (None,))
    )
    known = tuple(size for size in shape if isinstance(size, int))
    if known != shape:
        raise UnsupportedError(
            "GP320",
            f"cannot tell what cache {cache.name} {shape_text(cache.shape)} of kind {cache.kind} looks like when empty"
            + "".join(f"; {fact}" for fact in cache.evidence),
        )
    return known
