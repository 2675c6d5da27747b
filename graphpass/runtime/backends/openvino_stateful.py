"""Run stateful models in OpenVINO."""

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
    """Caches in OpenVINO's variables."""

    #: To gather, the state API copies whole caches out and in. Measured on the CPU plugin of 2026.4.1 with 8 layers of
    #: fused attention: 3 to 37 us per gathered entry, 0.04 to 0.5 us per wasted entry and step.
    steps_per_copy = 50.0

    #: The state API copies whole caches only, so waste is removed at the same time.
    compacts_only = True

    def __init__(self, model: Model, inventory: Inventory, device: Device) -> None:
        """Compile the model.

        Raises:
            UsageError, UnsupportedError: As `graphpass.runtime.open_session`.
        """
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
    """Caches in variables of the GPU plugin; tokens whose entries would move are recomputed.

    The session gathers rows itself in two cases: if their number changes, since the plugin then reads wrong rows
    through its beam table; and in models with linear caches, whose rows the plugin reorders incorrectly
    (granitemoehybrid). Caches in i8 are not exposed, so their tokens are recomputed.

    Defects of the plugin of 2026.4.1, observed with the plugin on a CPU:

    - A growing variable that was set to fewer positions is read as empty.
    - A variable that was set and not used yet cannot be read.
    - A run with inputs of the same shapes as the last run's uses the caches of that run, even if they were reset or set
      in between.
    - In a process that ran another model before, a variable cannot be initialized with more rows than it had when it
      was reset.
    """

    steps_per_copy = math.inf

    def __init__(self, model: Model, inventory: Inventory, device: Device) -> None:
        """Compile the model.

        Raises:
            UsageError, UnsupportedError: As `graphpass.runtime.open_session`.
        """
        super().__init__(model, inventory, device)
        self.keeps_batch, self.growing_sealed = True, bool(self.growing)
        self.gathers_rows = all(self._request.hands_out(cache.name) for cache in self.growing)
        self.mixes_rows = bool(self.fixed)
        # Values to set before the next run; whether growing caches changed since the last run; whether all were reset.
        self._due: dict[Cache, Array] = {}
        self._is_changed = self._is_reset = False
        self._fills = {cache: fill for cache in self.fixed if (fill := _fill(model.graph, cache)) is not None}
        # The shapes of the last run's inputs that the plugin compares.
        self._sizes: object = None

    def run(self, step: StepInputs) -> dict[str, Array]:
        feeds = self.inputs.feeds(step)
        # With linear caches, old caches are used for an equal number of new tokens, whatever the mask's length.
        sizes = step.input_ids.shape if self.fixed else {name: value.shape for name, value in feeds.items()}
        if self._is_changed and sizes == self._sizes:
            # A run with other shapes, and one row, makes the plugin read its variables again. They still have the rows
            # of the last run.
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
    """Return the initial value of one row, if all its elements are equal.

    ``None`` is returned for other values, and if a size is unknown.
    """
    start = fold_elements(graph, graph.reads[cache.read].input(0))
    shape = cache.shape or (None,)
    sizes = [size for size in shape[1:] if isinstance(size, int)]
    if start is None or start.size != 1 or cache.axes.batch != 0 or len(sizes) < len(shape) - 1:
        return None
    kind = numpy_type(graph.reads[cache.read].outputs[0].element_type, f"cache {cache.name}")
    return np.full((1, *sizes), start.item(), kind)
