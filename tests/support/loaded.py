"""Fixture models, loaded and of known dialect."""

from __future__ import annotations

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.io import load
from support.models import export


def onnx_model(name: str, variant: str = "onnx") -> OnnxModel:
    """An ONNX export."""
    model = load(export(name, variant))
    assert isinstance(model, OnnxModel)
    return model


def openvino_model(name: str, variant: str = "ov-stateful") -> OpenVINOModel:
    """An OpenVINO export."""
    model = load(export(name, variant))
    assert isinstance(model, OpenVINOModel)
    return model


def reshaped(model: OpenVINOModel, batch: int) -> OpenVINOModel:
    """``model`` with the batch fixed in all its inputs."""
    copy = model.clone()
    copy.ov_model.reshape(
        {port.get_any_name(): [batch, *list(port.partial_shape)[1:]] for port in copy.ov_model.inputs}
    )
    copy.mark_edited()
    return copy
