"""Open ONNX Runtime's WebGPU provider, and find the environment that it requires."""

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

#: Name of the device for `graphpass.runtime.open_session`.
NAME = "WEBGPU"

PROVIDER = "WebGpuExecutionProvider"


#: Longest prompt with correct attention on SwiftShader. From 32 new tokens on, GroupQueryAttention runs a shader for
#: subgroups of 8 or more (``contrib_ops/webgpu/bert/flash_attention.wgsl.template``), while SwiftShader's have 4:
#: results differ by 0.4, and by 1e-6 for fewer tokens (onnxruntime-ep-webgpu 0.4.0, onnxruntime-web 1.31 in Chromium).
LONGEST_IN_SOFTWARE = 31


def is_software() -> bool:
    """Return whether this process runs in the environment of a software adapter."""
    driver = software_vulkan()
    return driver is not None and os.environ.get("VK_ICD_FILENAMES") == driver["VK_ICD_FILENAMES"]


@functools.cache
def environment() -> Mapping[str, str] | str:
    """Return environment variables for the provider to find an adapter, or the reason of failure."""
    runtime = find_webgpu()
    if runtime.missing is not None:
        return f"{runtime.name}: {runtime.missing}"
    return (software_vulkan() or {}) if runtime.adapters[0].is_software else {}


@functools.cache
def webgpu_device() -> Any:
    """Return the provider's first device in this process, if any."""
    import onnxruntime

    library = importlib.import_module("onnxruntime_ep_webgpu").get_library_path()
    onnxruntime.register_execution_provider_library("webgpu", library)
    return next((device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER), None)


def for_adapter(model: _Model, *, is_software: bool) -> tuple[_Model, str]:
    """Return the model to run on a WebGPU adapter, and a description of its difference.

    Args:
        model: The model to try.
        is_software: Whether the adapter is SwiftShader, for which a model in f16 is copied in f32.

    Returns:
        The model or its copy, and a text on the copy's precision; the text is empty for the model itself.
    """
    from graphpass.dialects.onnx.precision import in_f32, is_in_f16

    if not is_software or not model.analysis(is_in_f16):
        return model, ""
    twin: Any = in_f32(model)
    return twin, " in f32, since SwiftShader has no f16"
