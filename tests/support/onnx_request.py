"""ONNX Runtime behind the few calls of an `openvino.InferRequest` that `support.decode.Decoder` makes."""

from __future__ import annotations

from typing import Any

import numpy
import onnxruntime
import openvino

from graphpass.dialects.onnx.model import OnnxModel

_TYPES = {
    "tensor(float)": openvino.Type.f32,
    "tensor(float16)": openvino.Type.f16,
    "tensor(int64)": openvino.Type.i64,
    "tensor(int32)": openvino.Type.i32,
    "tensor(bool)": openvino.Type.boolean,
}


class _Port:
    def __init__(self, info: Any) -> None:
        self._info = info

    def get_names(self) -> set[str]:
        return {self._info.name}

    def get_partial_shape(self) -> openvino.PartialShape:
        return openvino.PartialShape([size if isinstance(size, int) else -1 for size in self._info.shape])

    def get_element_type(self) -> openvino.Type:
        return _TYPES[self._info.type]


class OnnxRequest:
    """One ONNX model in ONNX Runtime, on the CPU."""

    def __init__(self, model: OnnxModel) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        with model.on_disk() as path:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.model_inputs = [_Port(info) for info in self._session.get_inputs()]
        self.model_outputs = [_Port(info) for info in self._session.get_outputs()]

    def infer(self, feeds: dict[str, numpy.ndarray], *, share_outputs: bool) -> dict[str, numpy.ndarray]:
        """All outputs by name; ``share_outputs`` makes no difference here."""
        names = [info.name for info in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, feeds), strict=True))

    def reset_state(self) -> None:
        """There is none."""
