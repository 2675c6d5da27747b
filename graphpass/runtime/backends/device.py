"""A device and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from graphpass.errors import UsageError
from graphpass.runtime.devices.webgpu import NAME

_IR = "OpenVINO's devices run OpenVINO IR, which graphpass convert --target {} writes; or use the openvino backend"

#: Hints for devices on which ONNX Runtime does not run models of dynamic shapes.
_REMEDIES = {
    "GPU": _IR.format("gpu"),
    "NPU": _IR.format("npu"),
    "QNN": "QNN runs a pair of models of static shapes, which graphpass convert --target qnn writes",
}
_OTHER = "graphpass devices lists the devices of this machine"


@dataclass(frozen=True, slots=True)
class Device:
    """A device and its settings.

    Attributes:
        name: The OpenVINO device; ONNX Runtime runs on ``"CPU"`` and ``"WEBGPU"``.
        exact: Whether to compute and store caches in f32, if the device has options for it.
        properties: OpenVINO's properties by name, which override those of ``exact``.
        profile: A folder for ONNX Runtime's profile; ``None`` disables profiling.
    """

    name: str = "CPU"
    exact: bool = True
    properties: Mapping[str, object] = field(default_factory=dict)
    profile: Path | None = None

    def require_onnxruntime(self) -> None:
        """Raise if ONNX Runtime does not support the device or its properties.

        Raises:
            UsageError: GP240, the device is neither CPU nor WebGPU, or properties are set.
        """
        if self.name not in {"CPU", NAME}:
            message = f"ONNX Runtime runs this model on CPU and {NAME}, not on {self.name!r}"
            raise UsageError("GP240", message, _REMEDIES.get(self.name.partition(".")[0], _OTHER))
        if self.properties:
            message = f"{next(iter(self.properties))} is a property of OpenVINO's devices, not of ONNX Runtime"
            raise UsageError("GP240", message, "leave it out for ONNX models, or use the openvino backend")
