"""Open ONNX Runtime's WebGPU provider, and find an environment in which it has an adapter."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from graphpass.runtime.devices.find import find_webgpu
from graphpass.runtime.devices.software import software_vulkan

if TYPE_CHECKING:
    from graphpass.ir.model import Model

_Model = TypeVar("_Model", bound="Model")

#: Name of the device, as `graphpass.runtime.open_session` takes it.
NAME = "WEBGPU"

PROVIDER = "WebGpuExecutionProvider"


#: Longest prompt that attention computes rightly on SwiftShader. From 32 new tokens on, GroupQueryAttention runs a
#: shader for subgroups of 8 and more (``contrib_ops/webgpu/bert/flash_attention.wgsl.template``), and SwiftShader's are
#: of 4: results differ by 0.4, below by 1e-6 (onnxruntime-ep-webgpu 0.4.0, and onnxruntime-web 1.31 in Chromium).
LONGEST_IN_SOFTWARE = 31


def is_software() -> bool:
    """Return whether this process runs in the environment of a software adapter."""
    driver = software_vulkan()
    return driver is not None and os.environ.get("VK_ICD_FILENAMES") == driver["VK_ICD_FILENAMES"]


@functools.cache
def environment() -> Mapping[str, str] | str:
    """Return the variables by which the provider finds an adapter, or what is missing."""
    runtime = find_webgpu()
    if runtime.missing is not None:
        return f"{runtime.name}: {runtime.missing}"
    return (software_vulkan() or {}) if runtime.adapters[0].is_software else {}


@functools.cache
def webgpu_device() -> Any:
    """Return the provider's first device in this process; ``None`` without one."""
    import onnxruntime

    library = importlib.import_module("onnxruntime_ep_webgpu").get_library_path()
    onnxruntime.register_execution_provider_library("webgpu", library)
    return next((device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER), None)


def for_adapter(model: _Model, *, is_software: bool) -> tuple[_Model, str]:
    """Return the model that an adapter of WebGPU runs, and how it differs, in words."""
    from graphpass.dialects.onnx.precision import in_f32, is_in_f16

    if not is_software or not model.analysis(is_in_f16):
        return model, ""
    twin: Any = in_f32(model)
    return twin, " in f32, since SwiftShader has no f16"
