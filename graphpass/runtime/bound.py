"""A model in a runtime, with its caches bound to memory of the caller's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graphpass.runtime.failures import compiling, running

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphpass.model import Model
    from graphpass.onnx_model import OnnxModel
    from graphpass.runtime.inputs import Array

__all__ = ["BoundModel", "bound_model"]


class BoundModel(Protocol):
    """Runs a model whose caches lie where the caller says; nothing of them is copied on the way."""

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Let inputs and outputs lie in these arrays, C-contiguous, from here on.

        Args:
            inputs: By name.
            outputs: By name; an array may be that of an input, too, where the model writes in place.
        """

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run on the inputs that are not bound; gives the outputs that are not bound, by name.

        Raises:
            UnsupportedError: GP322, the runtime failed.
        """


def bound_model(model: Model, device: str = "CPU", *, exact: bool = True) -> BoundModel:
    """Make a model ready: an ONNX model in ONNX Runtime, an IR in OpenVINO.

    Args:
        model: What to run.
        device: The OpenVINO device.
        exact: OpenVINO only: compute in f32.

    Raises:
        UnsupportedError: GP321, the runtime refuses the model.
    """
    if model.dialect == "onnx":
        from graphpass.onnx_model import OnnxModel

        assert isinstance(model, OnnxModel)
        return _InOnnxRuntime(model)
    return _InOpenVINO(model, device, exact)


class _InOnnxRuntime:
    def __init__(self, model: OnnxModel) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what goes wrong is raised; it need not be logged as well
        options.use_deterministic_compute = True
        with compiling("ONNX Runtime"), model.on_disk() as path:
            self._session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]
        self._inputs: Mapping[str, Array] = {}
        self._outputs: Mapping[str, Array] = {}

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        self._inputs, self._outputs = inputs, outputs

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        binding = self._session.io_binding()
        # The binding knows addresses only, so the arrays have to live until it has run.
        arrays = {name: np.ascontiguousarray(array) for name, array in feeds.items()} | dict(self._inputs)
        with running("ONNX Runtime"):
            for name, array in arrays.items():
                binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
            for name in self._names:
                if (room := self._outputs.get(name)) is not None:
                    binding.bind_output(name, "cpu", 0, room.dtype, room.shape, room.ctypes.data)
                else:
                    binding.bind_output(name, "cpu")
            self._session.run_with_iobinding(binding)
            found = zip(self._names, binding.get_outputs(), strict=True)
            return {name: value.numpy() for name, value in found if name not in self._outputs}


class _InOpenVINO:
    def __init__(self, model: Model, device: str, exact: bool) -> None:
        from graphpass.runtime.openvino_request import OpenVINORequest

        self._runtime = f"OpenVINO on {device}"
        self._names = [port.name for port in model.outputs]
        self._request: Any = OpenVINORequest(model, device, exact).native
        self._bound: frozenset[str] = frozenset()
        self._alive: list[Array] = []

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        import openvino

        with running(self._runtime):
            for name, array in (*inputs.items(), *outputs.items()):
                self._request.set_tensor(name, openvino.Tensor(array, shared_memory=True))
        self._bound = frozenset(outputs)
        # Tensors know addresses only.
        self._alive = [*inputs.values(), *outputs.values()]

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        with running(self._runtime):
            self._request.infer(dict(feeds))
            return {
                name: self._request.get_output_tensor(index).data.copy()
                for index, name in enumerate(self._names)
                if name not in self._bound
            }
