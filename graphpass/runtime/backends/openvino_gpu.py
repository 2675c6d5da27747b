"""Run models in OpenVINO's GPU plugin, whose caches are variables.

The plugin of 2026.4.1, measured on a CPU that stands in for a GPU: a growing variable that was set to fewer positions
is read as if it were empty, one that was set and not used yet cannot be read, and a run with inputs of the same shapes
as the last one works on the caches of that one, though they were reset or set in between.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from graphpass.runtime.backends.openvino_stateful import OpenVINOStatefulSession
from graphpass.runtime.sessions.inputs import Step
from graphpass.runtime.sessions.slots import CompactionPolicy

if TYPE_CHECKING:
    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.model import Model
    from graphpass.runtime.backends.device import Device
    from graphpass.runtime.sessions.inputs import Array


class OpenVINOGPUSession(OpenVINOStatefulSession):
    """Leaves entries where they are: what has to move is computed again.

    Rows are gathered if their number changes, since the plugin reads wrong rows through its table of beams then, and
    always beside linear caches, whose rows it mixes up (granitemoehybrid); unless it keeps caches in i8, which it does
    not hand out.
    """

    def __init__(self, model: Model, inventory: Inventory, device: Device) -> None:
        """Compile the model; raises as `graphpass.runtime.open_session`."""
        super().__init__(model, inventory, device)
        self._keeps_batch = self._growing_sealed = True
        self._gathers_rows = all(self._request.hands_out(cache.name) for cache in self._growing)
        self._mixes_rows = bool(self._fixed)
        self._compaction = CompactionPolicy(self._past_order, math.inf)
        # Values to set before the next run, and whether growing caches changed since the last one.
        self._due: dict[Cache, Array] = {}
        self._is_changed = False
        # Sizes of the last run's inputs as far as the plugin compares them.
        self._sizes: object = None

    def _run(self, step: Step) -> dict[str, Array]:
        feeds = self._inputs.feeds(step)
        # Linear caches are kept if as many new tokens follow, though masks of other lengths come with them.
        sizes = step.input_ids.shape if self._fixed else {name: value.shape for name, value in feeds.items()}
        if self._is_changed and sizes == self._sizes:
            # Those that are there have as many rows as the last run had.
            self._request.reset_state(self.adapters)
            length = step.length + 1
            ones = np.ones((1, length), np.int64)
            self._request.infer(self._inputs.feeds(Step(ones - 1, ones, np.arange(length)[None], 0)))
            self._request.reset_state(self.adapters)
        for cache, value in self._due.items():
            super()._write(cache, value)
        self._due, self._is_changed, self._sizes = {}, False, sizes
        results = self._request.infer(feeds)
        return {name: results[name] for name in self.outputs}

    def _forget(self) -> None:
        super()._forget()
        self._due = {cache: value for cache, value in self._due.items() if cache in self._adapters}
        self._is_changed = True

    def _read(self, cache: Cache) -> Array:
        return self._due[cache] if cache in self._due else super()._read(cache)

    def _write(self, cache: Cache, value: Array) -> None:
        self._due[cache] = value
        self._is_changed |= cache in self._growing
