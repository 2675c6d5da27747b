"""One step of a model, on memory of the caller's, in whatever runtime takes the model's dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from graphpass.runtime.sessions.inputs import Array

if TYPE_CHECKING:
    from graphpass.ir.model import Model

__all__ = ["Infer", "infer_of"]

Infer: TypeAlias = Callable[[dict[str, Array], dict[str, Array]], dict[str, Array]]
"""All inputs by name, and where outputs are to be written, by name; gives the other outputs by name."""


def infer_of(model: Model, device: str, exact: bool) -> Infer:
    """Make a model ready: an ONNX model in ONNX Runtime, an IR in OpenVINO.

    Args:
        model: What to run.
        device: The OpenVINO device.
        exact: Compute in f32.

    Raises:
        UnsupportedError: GP321, the runtime refuses the model.
    """
    if model.dialect == "onnx":
        from graphpass.dialects.onnx.model import OnnxModel
        from graphpass.runtime.backends.onnxruntime_request import OnnxRuntimeRequest

        assert isinstance(model, OnnxModel)
        return OnnxRuntimeRequest(model, exact).infer
    from graphpass.runtime.backends.openvino_request import OpenVINORequest

    return OpenVINORequest(model, device, exact).infer_into
