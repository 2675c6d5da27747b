"""Run models in OpenVINO whose caches are variables."""

from __future__ import annotations

from collections.abc import Mapping

from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.model import Model
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.openvino_request import OpenVINORequest
from graphpass.runtime.sessions.cache_store import CacheStore
from graphpass.runtime.sessions.inputs import Array, StepInputs


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
