"""ONNX models in ONNX Runtime, on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.runtime.backends.onnxruntime_request import OnnxRuntimeRequest
from graphpass.runtime.backends.stateless import StatelessSession

if TYPE_CHECKING:
    from graphpass.ir.cache import Inventory
    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.inputs import Array

__all__ = ["OnnxRuntimeStatelessSession"]


class OnnxRuntimeStatelessSession(StatelessSession):
    """An ONNX model in ONNX Runtime."""

    def __init__(self, model: Model, inventory: Inventory, exact: bool) -> None:
        """Open the model.

        Args:
            model: An `OnnxModel`.
            inventory: Its caches.
            exact: See `OnnxRuntimeRequest`.

        Raises:
            UnsupportedError: GP320 an input or a cache that cannot be fed; GP321 ONNX Runtime refuses the model.
        """
        super().__init__(model, inventory)
        assert isinstance(model, OnnxModel)
        self._request = OnnxRuntimeRequest(model, exact)

    def _infer(self, feeds: dict[str, Array], rooms: dict[str, Array]) -> dict[str, Array]:
        return self._request.infer(feeds, rooms)
