"""Run models in OpenVINO whose caches are variables."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from graphpass.analysis.symbolic.folding import fold_elements
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.graph import Graph
from graphpass.ir.model import Model
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.openvino_request import OpenVINORequest
from graphpass.runtime.sessions.cache_store import CacheStore
from graphpass.runtime.sessions.inputs import Array, StepInputs, numpy_type


class OpenVINOStatefulStore(CacheStore):
    """Leaves the caches to OpenVINO."""

    #: The state API copies all out and in again to gather. Measured on the CPU plugin of 2026.4.1, 8 layers of fused
    #: attention: 3 to 37 us an entry, against 0.04 to 0.5 us a wasted entry and step.
    steps_per_copy = 50.0

    #: The state API takes no less than whole caches, so waste can go at the same time.
    compacts_only = True

    def __init__(self, model: Model, inventory: Inventory, device: Device) -> None:
        """Compile the model; raises as `graphpass.runtime.open_session`."""
        super().__init__(model, inventory)
        self._request = OpenVINORequest(model, device)

    def run(self, step: StepInputs) -> dict[str, Array]:
        results = self._request.infer(self.inputs.feeds(step))
        return {name: results[name] for name in self.outputs}

    def settings(self) -> Mapping[str, str]:
        return self._request.settings

    def forget(self) -> None:
        self._request.reset_state(self.adapter_names)

    def read(self, cache: Cache) -> Array:
        return self._request.state(cache.name)

    def write(self, cache: Cache, value: Array) -> None:
        self._request.set_state(cache.name, value)


class OpenVINOGPUStore(OpenVINOStatefulStore):
    """Leaves entries where they are: what has to move is computed again.

    Rows are gathered if their number changes, since the plugin reads wrong rows through its table of beams then, and
    always beside linear caches, whose rows it mixes up (granitemoehybrid); unless it keeps caches in i8, which it does
    not return.

    The plugin of 2026.4.1, measured on a CPU that stands in for a GPU: a growing variable that was set to fewer
    positions is read as if it were empty, one that was set and not used yet cannot be read, and a run with inputs of
    the same shapes as the last one works on the caches of that one, though they were reset or set in between. In a
    process that ran another model before, there is no room for the initial value of a variable with more rows than it
    had when it was reset.
    """

    steps_per_copy = math.inf

    def __init__(self, model: Model, inventory: Inventory, device: Device) -> None:
        """Compile the model; raises as `graphpass.runtime.open_session`."""
        super().__init__(model, inventory, device)
        self.keeps_batch, self.growing_sealed = True, bool(self.growing)
        self.gathers_rows = all(self._request.hands_out(cache.name) for cache in self.growing)
        self.mixes_rows = bool(self.fixed)
        # Values to set before the next run, and whether growing caches changed since the last one, or all were reset.
        self._due: dict[Cache, Array] = {}
        self._is_changed = self._is_reset = False
        self._fills = {cache: fill for cache in self.fixed if (fill := _fill(model.graph, cache)) is not None}
        # Sizes of the last run's inputs as far as the plugin compares them.
        self._sizes: object = None

    def run(self, step: StepInputs) -> dict[str, Array]:
        feeds = self.inputs.feeds(step)
        # Linear caches are kept if as many new tokens follow, though masks of other lengths come with them.
        sizes = step.input_ids.shape if self.fixed else {name: value.shape for name, value in feeds.items()}
        if self._is_changed and sizes == self._sizes:
            # Those that are there have as many rows as the last run had.
            self._start(1)
            length = step.length + 1
            ones = np.ones((1, length), np.int64)
            self._request.infer(self.inputs.feeds(StepInputs(ones - 1, ones, np.arange(length)[None], 0)))
            self._is_reset = True
        if self._is_reset:
            self._start(step.batch)
        for cache, value in self._due.items():
            super().write(cache, value)
        self._due, self._is_changed, self._is_reset, self._sizes = {}, False, False, sizes
        results = self._request.infer(feeds)
        return {name: results[name] for name in self.outputs}

    def _start(self, rows: int) -> None:
        """Set caches to their initial values."""
        self._request.reset_state({*self.adapter_names, *(cache.name for cache in self._fills)})
        for cache, fill in self._fills.items():
            super().write(cache, fill.repeat(rows, 0))

    def forget(self) -> None:
        self._due = {cache: value for cache, value in self._due.items() if cache in self.adapters}
        self._is_changed = self._is_reset = True

    def read(self, cache: Cache) -> Array:
        return self._due[cache] if cache in self._due else super().read(cache)

    def write(self, cache: Cache, value: Array) -> None:
        self._due[cache] = value
        self._is_changed |= cache in self.growing


def _fill(graph: Graph, cache: Cache) -> Array | None:
    """Return the initial value of one row, if all of it is one number.

    ``None`` stands for other values, and for sizes that are not known.
    """
    start = fold_elements(graph, graph.reads[cache.read].input(0))
    shape = cache.shape or (None,)
    sizes = [size for size in shape[1:] if isinstance(size, int)]
    if start is None or start.size != 1 or cache.axes.batch != 0 or len(sizes) < len(shape) - 1:
        return None
    kind = numpy_type(graph.reads[cache.read].outputs[0].element_type, f"cache {cache.name}")
    return np.full((1, *sizes), start.item(), kind)
