"""Run ONNX models whose caches ONNX Runtime updates in place."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.ir.cache import Cache, Inventory
from graphpass.runtime.backends.fixed_capacity import FixedCapacityStore, cache_memory
from graphpass.runtime.backends.onnxruntime_request import OnnxRuntimeRequest
from graphpass.runtime.sessions.inputs import Array, StepInputs

#: Operators that update a cache in place if past and present share a buffer.
_IN_PLACE = frozenset({"GroupQueryAttention", "ScatterElementsUpdate", "ScatterNDUpdate", "TensorScatter"})

#: Initial capacity of growing buffers, in positions.
_FIRST = 64


def capacity_in_place(model: OnnxModel, inventory: Inventory) -> int | None:
    """Return the capacity of growing caches; ``None`` if they cannot be updated in place.

    They can if all have the same capacity, an operator updates each in the buffer of its past, and no other operator
    reads that past, as in models from `static-cache` or the onnxruntime-genai builder.

    Args:
        model: A model with caches as inputs and outputs.
        inventory: The caches of the model.
    """
    graph = model.graph
    reads, writes = graph.reads, graph.writes
    sizes = set()
    for cache in inventory.of_kind("kv"):
        maker = graph.producer(writes[str(cache.write)].source())
        if maker.op not in _IN_PLACE or maker.attributes.get("mode") == b"circular":
            return None
        if {use.node for use in graph.uses(reads[cache.read].outputs[0]) if use.node.op != "ShapeOf"} != {maker}:
            return None
        sizes.add(cache.capacity)
    return sizes.pop() if len(sizes) == 1 and not inventory.windowed else None


def has_open_capacity(model: OnnxModel, inventory: Inventory) -> bool:
    """Return whether buffers may have any capacity: only GroupQueryAttention reads each past.

    Args:
        model: A model with caches as inputs and outputs.
        inventory: The caches of the model; the result is false unless all are ``kv`` and store all positions.
    """
    graph = model.graph
    pasts = [graph.reads[cache.read].outputs[0] for cache in inventory.caches if cache.kind == "kv" and cache.write]
    is_alone = all({use.node.op for use in graph.uses(past)} == {"GroupQueryAttention"} for past in pasts)
    is_whole = bool(pasts) and len(pasts) == len(inventory.caches) and not inventory.windowed
    return is_alone and is_whole and not any(cache.capacity is not None for cache in inventory.caches)


class OnnxRuntimeInPlaceStore(FixedCapacityStore):
    """Caches in shared buffers: past and present of a growing cache are one buffer.

    A step neither allocates nor copies buffers of fixed capacity; they are reallocated if the number of rows changes.

    Attributes:
        grows: Whether buffers may have any capacity; they double when they are full.
    """

    def __init__(self, model: OnnxModel, inventory: Inventory, capacity: int | None, exact: bool) -> None:
        """Open the model with the capacity from `capacity_in_place`; ``None`` if `has_open_capacity`.

        Raises as `graphpass.runtime.open_session`.
        """
        self.grows = capacity is None
        room = _FIRST if capacity is None else capacity
        super().__init__(model, inventory, room, room)
        # A state is read while it is written, so it alternates between two buffers.
        self._spare: dict[str, Array] = {}
        for cache in inventory.caches:
            self._new_memory(cache, 0)
        self._request = OnnxRuntimeRequest(model, exact)

    def check_room(self, count: int, length: int) -> None:
        if not self.grows:
            super().check_room(count, length)

    def run(self, step: StepInputs) -> dict[str, Array]:
        self._reserve(step.past + step.length)
        caches = self.inventory.caches
        pasts = {cache.read: self._make_memory(cache, step.batch) for cache in caches}
        rooms = {str(cache.write): self._spare.get(cache.read, pasts[cache.read]) for cache in caches}
        self._end = max(self._end, step.past + step.length)
        outputs = self._request.infer(self.inputs.feeds(step) | pasts, rooms)
        for name, spare in self._spare.items():
            self.buffers[name], self._spare[name] = spare, self.buffers[name]
        return outputs

    def settings(self) -> Mapping[str, str]:
        return self._request.settings

    def forget(self) -> None:
        for cache in self.inventory.caches if self.buffers else ():
            if cache.kind == "kv":
                self._clear(cache, 0)
            else:
                self.buffers[cache.read][...] = 0
        self._end = 0

    def write(self, cache: Cache, value: Array) -> None:
        axis = cache.axes.batch
        if cache.kind == "kv" and cache.axes.sequence is not None:
            self._reserve(value.shape[cache.axes.sequence])
        self._make_memory(cache, 1 if axis is None else value.shape[axis])
        super().write(cache, value)

    def _reserve(self, count: int) -> None:
        """Enlarge the buffers to ``count`` positions or more, if they grow."""
        if not self.grows or count <= self.capacity:
            return
        self.capacity = max(count, 2 * self.capacity)
        for cache in self.inventory.caches:
            old, axis = self.buffers.get(cache.read), cache.axes.sequence
            if old is not None and axis is not None:
                new = self._new_memory(cache, old.shape[cache.axes.batch or 0])
                used = (slice(None),) * axis + (slice(0, self._end),)
                new[used] = old[used]
                self.bytes_copied += new[used].nbytes
                self.buffers[cache.read] = new

    def _new_memory(self, cache: Cache, batch: int) -> Array:
        return cache_memory(cache, batch, self.capacity if self.grows else None)

    def _make_memory(self, cache: Cache, batch: int) -> Array:
        buffer, axis = self.buffers.get(cache.read), cache.axes.batch
        if buffer is None or (axis is not None and buffer.shape[axis] != batch):
            buffer = self.buffers[cache.read] = self._new_memory(cache, batch)
            if cache.kind != "kv":
                self._spare[cache.read] = np.zeros_like(buffer)
        return buffer
