"""ONNX models in ONNX Runtime, on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnxruntime

from graphpass.onnx_model import OnnxModel
from graphpass.runtime.failures import compiling, running
from graphpass.runtime.stateless import StatelessSession

if TYPE_CHECKING:
    from graphpass.caches import Inventory
    from graphpass.model import Model
    from graphpass.runtime.inputs import Array

__all__ = ["OnnxRuntimeStatelessSession"]

_FATAL_ONLY = 4  # what goes wrong is raised; it need not be logged as well


class OnnxRuntimeStatelessSession(StatelessSession):
    """An ONNX model in ONNX Runtime."""

    def __init__(self, model: Model, inventory: Inventory) -> None:
        """Create the runtime's session.

        Args:
            model: An `OnnxModel`.
            inventory: Its caches.

        Raises:
            UnsupportedError: GP320 an input or a cache that cannot be fed; GP321 ONNX Runtime refuses the model.
        """
        super().__init__(model, inventory)
        assert isinstance(model, OnnxModel)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL_ONLY
        options.use_deterministic_compute = True
        with compiling("ONNX Runtime"), model.on_disk() as path:
            self._session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]
        self._run_options = onnxruntime.RunOptions()
        self._run_options.log_severity_level = _FATAL_ONLY

    def _infer(self, feeds: dict[str, Array]) -> dict[str, Array]:
        with running("ONNX Runtime"):
            results = self._session.run(self._names, feeds, self._run_options)
        return dict(zip(self._names, results, strict=True))
