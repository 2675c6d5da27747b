"""Models in OpenVINO whose caches are inputs and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.runtime.backends.openvino_request import OpenVINORequest
from graphpass.runtime.backends.stateless import StatelessSession

if TYPE_CHECKING:
    from graphpass.ir.cache import Inventory
    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.inputs import Array

__all__ = ["OpenVINOStatelessSession"]


class OpenVINOStatelessSession(StatelessSession):
    """A model in OpenVINO that keeps nothing; the session carries the caches."""

    def __init__(self, model: Model, inventory: Inventory, device: str, exact: bool) -> None:
        """Compile the model.

        Args:
            model: What to run.
            inventory: Its caches.
            device: The OpenVINO device.
            exact: Compute in f32.

        Raises:
            UnsupportedError: GP320 an input or a cache that cannot be fed; GP321 OpenVINO refuses the model.
        """
        super().__init__(model, inventory)
        self._request = OpenVINORequest(model, device, exact)

    def _infer(self, feeds: dict[str, Array], rooms: dict[str, Array]) -> dict[str, Array]:
        return self._request.infer_into(feeds, rooms)
