"""Run ONNX models whose past and present may be one buffer of any room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphpass.errors import UnsupportedError
from graphpass.runtime.backends.onnxruntime_in_place import OnnxRuntimeInPlaceSession
from graphpass.runtime.sessions.inputs import numpy_type

if TYPE_CHECKING:
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.ir.cache import Cache, Inventory
    from graphpass.runtime.sessions.inputs import Array, Step

#: Positions of the first buffers.
_FIRST = 64


class OnnxRuntimeSharedSession(OnnxRuntimeInPlaceSession):
    """Keeps each cache in one buffer, past and present, which doubles when it is full."""

    def __init__(self, model: OnnxModel, inventory: Inventory, exact: bool) -> None:
        """Open a model of `has_open_capacity`; raises as `graphpass.runtime.open_session`."""
        super().__init__(model, inventory, _FIRST, exact)

    def _check_room(self, count: int, held: int) -> None:
        """Refuse nothing: buffers grow."""

    def _run(self, step: Step) -> dict[str, Array]:
        self._reserve(step.past + step.length)
        return super()._run(step)

    def _write(self, cache: Cache, value: Array) -> None:
        assert cache.axes.sequence is not None
        self._reserve(value.shape[cache.axes.sequence])
        super()._write(cache, value)

    def _reserve(self, count: int) -> None:
        if count <= self.capacity:
            return
        self.capacity = max(count, 2 * self.capacity)
        for cache in self._inventory.caches:
            old, axis = self.buffers.get(cache.read), cache.axes.sequence
            if old is not None and axis is not None:
                new = self._new_memory(cache, old.shape[cache.axes.batch or 0])
                used = (slice(None),) * axis + (slice(0, self._end),)
                new[used] = old[used]
                self._bytes_copied += new[used].nbytes
                self.buffers[cache.read] = new

    def _new_memory(self, cache: Cache, batch: int) -> Array:
        shape = [
            {cache.axes.batch: batch, cache.axes.sequence: self.capacity}.get(axis, size)
            for axis, size in enumerate(cache.shape or (None,))
        ]
        known = [size for size in shape if isinstance(size, int)]
        if len(known) != len(shape):
            raise UnsupportedError("GP320", f"cannot tell how large cache {cache.name} {shape} is")
        return np.zeros(known, numpy_type(cache.element_type, f"cache {cache.name}"))
