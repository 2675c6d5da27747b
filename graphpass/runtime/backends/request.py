"""Open a model in the runtime that takes its dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from graphpass.errors import UsageError

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.inputs import Array


Backend = Literal["auto", "openvino", "onnxruntime"]


@dataclass(frozen=True, slots=True)
class Device:
    """Names a device and its settings.

    Attributes:
        name: The OpenVINO device; ONNX Runtime runs on ``"CPU"`` only.
        exact: Compute and keep caches in f32, as far as the device has options for that.
        properties: OpenVINO's properties by name, which hold before those of ``exact``.
    """

    name: str = "CPU"
    exact: bool = True
    properties: Mapping[str, object] = field(default_factory=dict)

    def require_onnxruntime(self) -> None:
        """Refuse what ONNX Runtime has not.

        Raises:
            UsageError: GP240, another device than the CPU, or properties.
        """
        if self.name != "CPU":
            message = f"the onnxruntime backend runs on CPU, not on {self.name}"
            raise UsageError("GP240", message, "use the openvino backend")
        if self.properties:
            message = f"{next(iter(self.properties))} is a property of OpenVINO's devices, not of ONNX Runtime"
            raise UsageError("GP240", message, "use the openvino backend")


class Request(Protocol):
    """Runs one model on memory of the caller's."""

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
        device.require_onnxruntime()
        return OnnxRuntimeRequest(model, device.exact)
    from graphpass.runtime.backends.openvino_request import OpenVINORequest

    return OpenVINORequest(model, device)
