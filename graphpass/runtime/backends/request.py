"""Open a model in the runtime of its dialect."""

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
    """A model opened in a runtime, which can write outputs to the caller's memory."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Return settings that affect results, and so the contents of caches, by name."""
        ...

    def infer(self, feeds: dict[str, Array], rooms: dict[str, Array] | None = None) -> dict[str, Array]:
        """Run the model.

        Args:
            feeds: An array for each input by name, in its element type.
            rooms: Memory for outputs by name, in their types and shapes; these are not returned.

        Returns:
            Outputs by name, in their element types, without those in ``rooms``.

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
        backend: The runtime; ``"auto"`` selects ONNX Runtime for ONNX.

    Returns:
        The compiled model.

    Raises:
        UnsupportedError: GP321, the runtime refuses the model.
        UsageError: GP240, ONNX Runtime does not support the device or its properties.
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
