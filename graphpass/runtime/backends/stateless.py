"""Run stateless models: present outputs become the past inputs of the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphpass.errors import UnsupportedError
from graphpass.ir.types import shape_text
from graphpass.runtime.backends.buffers import CacheBuffer
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.request import open_request
from graphpass.runtime.sessions.cache_store import CacheStore, does_not_grow, require_room
from graphpass.runtime.sessions.inputs import Array, StepInputs, numpy_type, require_written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.model import Model
    from graphpass.runtime.backends.request import Backend


class StatelessStore(CacheStore):
    """Caches in buffers: present outputs are written into past inputs of the next step.

    The first forward pass determines the presents that are as long as past and new tokens together; the runtime
    allocates the others. A model without caches is fed the whole history at every step, and its outputs are sliced to
    the new tokens. Pooled outputs of encoders are returned as ``[batch, 1, size]``.

    A part of a model whose caches are in another part does not replay: it is fed the new tokens only.

    Attributes:
        request: The opened model.
    """

    replays = True

    #: A step copies the whole past, waste included. Measured at 512 to 4096 entries of 8 layers, on ONNX Runtime and
    #: OpenVINO: 14 to 30 us per wasted entry and step, 0.5 to 4 us per gathered entry.
    steps_per_copy = 0.1

    def __init__(self, model: Model, inventory: Inventory, device: Device, backend: Backend = "auto") -> None:
        """Open the model; see `graphpass.runtime.open_session`."""
        super().__init__(model, inventory)
        least = _least_lengths(inventory)
        self._starts = {cache: _start(cache, least.get(cache.name, 0)) for cache in inventory.caches}
        # ONNX Runtime does not support rows of different lengths with caches that span a window from the start.
        self.takes_mask = self.takes_mask and not least
        self._buffers: dict[str, CacheBuffer] = {}
        self._foreseen: frozenset[str] = frozenset()
        self._has_run = False
        # A cache of fixed capacity is as long as past and new tokens together only when it is full.
        self._foreseeable = tuple(
            cache for cache in inventory.caches if cache.name not in inventory.windowed and cache.capacity is None
        )

        # Slots from the count on are written in place, in a layer with a window also.
        capacities = [cache.capacity for cache in self.growing if cache.capacity is not None]
        self._capacity = min(capacities, default=None) if self.inputs.counts_past else None
        self.request = open_request(model, device, backend)

    def check_room(self, count: int, length: int) -> None:
        if self._capacity is not None:
            require_room(count, length, self._capacity)

    def run(self, step: StepInputs) -> dict[str, Array]:
        self._make_buffers(step.batch)
        past = {cache.read: self._buffers[cache.name].content for cache in self._starts}
        rooms = {cache.write: self._buffers[cache.name].room(step.past + step.length) for cache in self._foreseeable}
        promised = {name: room for name, room in rooms.items() if name in self._foreseen}
        results = self.request.infer(self.inputs.feeds(step) | past, promised)
        if not self._starts and self.replays and self.is_encoder:  # pooled outputs have one entry for all tokens
            results = {name: value[:, None] if value.ndim == 2 else value for name, value in results.items()}
        self._has_run = True
        self._foreseen |= {
            name for name, room in rooms.items() if name in results and results[name].shape == room.shape
        }
        for cache in self._starts:
            if cache.write in promised:
                self._buffers[cache.name].written()
            elif cache.write is not None:
                self._buffers[cache.name].hold(results[cache.write])
                self.bytes_copied += results[cache.write].nbytes
        return {name: results[name] for name in self.outputs}

    def _make_buffers(self, batch: int) -> None:
        for cache, (shape, dtype) in self._starts.items():
            if cache.name not in self._buffers:
                sizes = [batch if axis == cache.axes.batch else size for axis, size in enumerate(shape)]
                self._buffers[cache.name] = CacheBuffer(np.zeros(sizes, dtype), cache.axes.sequence)

    def settings(self) -> Mapping[str, str]:
        return self.request.settings

    def forget(self) -> None:
        self._buffers = {}

    def read(self, cache: Cache) -> Array:
        return self._buffers[cache.name].content

    def write(self, cache: Cache, value: Array) -> None:
        self._buffers.setdefault(cache.name, CacheBuffer(value, cache.axes.sequence)).hold(value)

    def check_editable(self) -> None:
        super().check_editable()
        for cache in self.growing if self._buffers and self._has_run else ():
            if cache.write not in self._foreseen:
                raise does_not_grow(cache)

    def move(self, sources: NDArray[np.int64], destinations: NDArray[np.int64], size: int) -> None:  # noqa: ARG002
        for cache in self.growing:
            self.bytes_copied += self._buffers[cache.name].move(sources, destinations)

    def gather(self, entries: NDArray[np.int64] | None, rows: NDArray[np.int64] | None) -> None:
        for cache in (*self.growing, *self.fixed, *(self.unsorted if rows is not None else ())):
            buffer = self._buffers[cache.name]
            self.bytes_copied += buffer.gather(entries if cache in self.growing else None, rows, cache.axes.batch)


def _least_lengths(inventory: Inventory) -> dict[str, int]:
    """Return initial lengths of caches that span a window from the start, by name.

    These are caches of GroupQueryAttention with ``sliding_window_cache``.
    """
    return {
        name: block.window
        for block in inventory.attention
        if block.window_in == "state" and block.form == "GroupQueryAttention" and block.window is not None
        for name in (block.key, block.value)
        if name is not None
    }


def _start(cache: Cache, length: int) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    require_written(cache)
    free = {cache.axes.batch: 0, cache.axes.sequence: length}
    shape = tuple(
        free.get(axis, size) if axis == cache.axes.batch or not isinstance(size, int) else size
        for axis, size in enumerate(cache.shape or (None,))
    )
    known = tuple(size for size in shape if isinstance(size, int))
    dtype = numpy_type(cache.element_type, f"cache {cache.name}")
    if known != shape:
        raise UnsupportedError(
            "GP320",
            f"cannot determine the empty shape of cache {cache.name} {shape_text(cache.shape)} of kind {cache.kind}"
            + "".join(f"; {fact}" for fact in cache.evidence),
        )
    return known, dtype
