"""ONNX models with caches of fixed capacity in ONNX Runtime, which writes them in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphpass.errors import UnsupportedError
from graphpass.onnx_rewrite import attributes
from graphpass.onnx_walk import captured
from graphpass.runtime.arrangement import Arrangement
from graphpass.runtime.editable import check_editable, windowed
from graphpass.runtime.fixed_capacity import cache_memory, check_room
from graphpass.runtime.onnxruntime_request import OnnxRuntimeRequest
from graphpass.runtime.session import DecodeSession

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from graphpass.caches import Cache, Inventory
    from graphpass.onnx_model import OnnxModel
    from graphpass.runtime.inputs import Array, Step
    from graphpass.runtime.slots import Slots

__all__ = ["OnnxRuntimeInPlaceSession", "capacity_in_place"]

#: Operators that write into the memory of a cache where past and present are one.
_IN_PLACE = frozenset({"GroupQueryAttention", "ScatterElements", "ScatterND", "TensorScatter"})


def capacity_in_place(model: OnnxModel, inventory: Inventory) -> int | None:
    """How many positions the growing caches have room for; ``None`` where they are not written in place.

    They are where all have room for the same number, an operator writes each that can do so in the memory in which the
    past lies, and nothing else reads that past: as `static-cache` makes it, or the onnxruntime-genai builder exports.
    """
    makers = {name: node for node in model.proto.graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.proto.graph.node:
        for name in {*node.input, *captured(node)}:
            readers.setdefault(name, []).append(node)
    sizes = set()
    for cache in inventory.of_kind("kv"):
        maker = makers.get(str(cache.write))
        if maker is None or maker.op_type not in _IN_PLACE or attributes(maker).get("mode") == "circular":
            return None
        if [node for node in readers.get(cache.read, ()) if node.op_type != "Shape"] != [maker]:
            return None
        sizes.add((cache.shape or ())[cache.axes.sequence] if cache.axes.sequence is not None else None)
    size = sizes.pop() if len(sizes) == 1 and not windowed(inventory) else None
    return size if isinstance(size, int) else None


class OnnxRuntimeInPlaceSession(DecodeSession):
    """An ONNX model whose growing caches are one buffer each, past and present.

    A step neither allocates nor copies them.

    Buffers move only when the number of rows changes. What does not fit is refused before anything is overwritten.

    Attributes:
        capacity: How many positions fit.
        buffers: The memory of each cache, by the name of its past.
    """

    #: A step writes behind the entries that there are, so none are ever hidden; trimming them costs nothing.
    _steps_per_copy = 0.0

    def __init__(self, model: OnnxModel, inventory: Inventory, capacity: int, exact: bool) -> None:
        """Open the model.

        Args:
            model: What to run.
            inventory: Its caches.
            capacity: As `capacity_in_place` says.
            exact: See `OnnxRuntimeRequest`.

        Raises:
            UnsupportedError: GP320 an input or a cache that cannot be fed; GP321 ONNX Runtime refuses the model.
        """
        super().__init__(model, inventory)
        self._arrangement = Arrangement(lambda: "index", self._steps_per_copy)
        self.capacity = capacity
        self.buffers: dict[str, Array] = {}
        # A state is read while it is written, so that it takes two memories in turn.
        self._spare: dict[str, Array] = {}
        # So many entries of the growing caches were written; zeros lie behind them.
        self._end = 0
        for cache in inventory.caches:
            if cache.write is None:
                raise UnsupportedError("GP320", f"cache {cache.name} is only read: another model has to compute it")
            cache_memory(cache, 0)
        self._request = OnnxRuntimeRequest(model, exact)

    def _check_room(self, count: int, held: int) -> None:
        check_room(count, held, self.capacity)

    def _run(self, step: Step) -> dict[str, Array]:
        caches = self._inventory.caches
        pasts = {cache.read: self._buffer(cache, step.batch) for cache in caches}
        rooms = {str(cache.write): self._spare.get(cache.read, pasts[cache.read]) for cache in caches}
        self._end = max(self._end, step.past + step.length)
        outputs = self._request.infer(self._inputs.feeds(step) | pasts, rooms)
        for name, spare in self._spare.items():
            self.buffers[name], self._spare[name] = spare, self.buffers[name]
        return outputs

    def _buffer(self, cache: Cache, batch: int) -> Array:
        """The memory of ``cache`` for so many rows; zeros where it was for another number."""
        buffer, axis = self.buffers.get(cache.read), cache.axes.batch
        if buffer is None or (axis is not None and buffer.shape[axis] != batch):
            buffer = self.buffers[cache.read] = cache_memory(cache, batch)
            if cache.kind != "kv":
                self._spare[cache.read] = np.zeros_like(buffer)
        return buffer

    def _forget(self) -> None:
        for cache in self._inventory.caches if self.buffers else ():
            if cache.kind == "kv":
                self._clear(cache, 0)
            else:
                self.buffers[cache.read][...] = 0
        self._end = 0

    def _clear(self, cache: Cache, start: int) -> None:
        """Set the entries from ``start`` on to zero: attention weighs them with 0, which makes NaN of NaN."""
        _part(self.buffers[cache.read], cache, start, self._end)[...] = 0

    def _read(self, cache: Cache) -> Array:
        buffer = self.buffers[cache.read]
        return _part(buffer, cache, 0, self._end) if cache.kind == "kv" else buffer

    def _write(self, cache: Cache, value: Array) -> None:
        axes = cache.axes
        buffer = self._buffer(cache, 1 if axes.batch is None else value.shape[axes.batch])
        if cache.kind != "kv" or axes.sequence is None:
            buffer[...] = value
            return
        length = value.shape[axes.sequence]
        _part(buffer, cache, 0, length)[...] = value
        self._clear(cache, length)

    def _sort(self, slots: Slots) -> None:
        self._copy_snapshots()
        sources, destinations = slots.sort()
        self._end = max(self._end, slots.size)
        self._move(sources, destinations)

    def _gather(self, entries: NDArray[np.int64] | None, rows: NDArray[np.int64] | None) -> None:
        if entries is not None:
            moved = np.flatnonzero(entries != np.arange(len(entries)))
            self._move(entries[moved], moved)
            for cache in self._growing:
                self._clear(cache, len(entries))
            self._end = len(entries)
        if rows is not None:
            super()._gather(None, rows)

    def _move(self, sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> None:
        """Let entries of the growing caches take the old values of others."""
        for cache in self._growing if len(sources) else ():
            assert cache.axes.sequence is not None
            entries = np.moveaxis(self.buffers[cache.read], cache.axes.sequence, 0)
            # What is moved is read as a whole before any of it is overwritten.
            values = entries[sources]
            entries[destinations] = values
            self._bytes_copied += values.nbytes

    def _check_editable(self) -> None:
        check_editable(self._inventory, written_in_place=True)


def _part(buffer: Array, cache: Cache, start: int, stop: int) -> Array:
    """The entries of a growing cache from ``start`` up to ``stop``."""
    assert cache.axes.sequence is not None
    return buffer[(slice(None),) * cache.axes.sequence + (slice(start, stop),)]
