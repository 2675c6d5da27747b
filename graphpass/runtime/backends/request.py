"""Open a model in the runtime that takes its dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphpass.ir.model import Model
    from graphpass.runtime.backends.device import Device
    from graphpass.runtime.sessions.inputs import Array


Backend = Literal["auto", "openvino", "onnxruntime"]

#: Device of ONNX Runtime's QNN provider.
QNN = "QNN"


class Request(Protocol):
    """Runs one model on memory of the caller's."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings by name that decide what the model computes, and so the contents of caches."""
        ...

    def infer(self, feeds: dict[str, Array], rooms: dict[str, Array] | None = None) -> dict[str, Array]:
        """Map all inputs by name to all outputs by name.

        Args:
            feeds: One array an input.
            rooms: Memory for outputs that are not returned.

        Raises:
            UnsupportedError: GP322, the runtime failed.
        """
        ...


def open_request(model: Model, device: Device, backend: Backend = "auto") -> Request:
    """Open a model in ONNX Runtime or OpenVINO.

    Device ``"QNN"`` is Qualcomm's HTP in ONNX Runtime, or its emulator.

    Args:
        model: The model to run.
        device: The device and its settings.
        backend: The runtime; ``"auto"`` takes ONNX Runtime for ONNX.

    Raises:
        UnsupportedError: GP321, the runtime refuses the model.
        UsageError: GP240, ONNX Runtime has no such device or settings.
    """
    if model.dialect == "onnx" and backend != "openvino":
        from graphpass.dialects.onnx.model import OnnxModel
        from graphpass.runtime.backends.onnxruntime_request import OnnxRuntimeRequest

        assert isinstance(model, OnnxModel)
        if device.name == QNN:
            from graphpass.runtime.backends.qnn_request import QnnRequest

            return QnnRequest(model)
        device.require_onnxruntime()
        return OnnxRuntimeRequest(model, device.exact, device.name, device.profile)
    from graphpass.runtime.backends.openvino_request import OpenVINORequest

    return OpenVINORequest(model, device)
