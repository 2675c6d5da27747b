"""Name a device and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphpass.errors import UsageError


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
