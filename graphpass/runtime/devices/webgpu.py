"""Open ONNX Runtime's WebGPU provider, and find an environment in which it has an adapter."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

from graphpass.runtime.devices.find import find_webgpu
from graphpass.runtime.devices.software import software_vulkan

#: Name of the device, as `graphpass.runtime.open_session` takes it.
NAME = "WEBGPU"

PROVIDER = "WebGpuExecutionProvider"


@functools.cache
def environment() -> Mapping[str, str] | str:
    """Return the variables by which the provider finds an adapter, or what is missing."""
    found = find_webgpu()
    if found.missing is not None:
        return f"{found.name}: {found.missing}"
    return (software_vulkan() or {}) if found.adapters[0].is_software else {}


@functools.cache
def webgpu_device() -> Any:
    """Return the provider's first device in this process; ``None`` without one."""
    import onnxruntime

    library = importlib.import_module("onnxruntime_ep_webgpu").get_library_path()
    onnxruntime.register_execution_provider_library("webgpu", library)
    return next((found for found in onnxruntime.get_ep_devices() if found.ep_name == PROVIDER), None)
