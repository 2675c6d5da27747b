"""Fixture models, loaded and converted once a worker. Tests share them: to edit one, clone it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse, parse_target
from graphpass.io import load
from support.models import fixtures

if TYPE_CHECKING:
    from graphpass.engine.manager import PipelineResult
    from graphpass.engine.passes import Pass
    from graphpass.ir.model import Model


@functools.cache
def exported(place: str) -> Model:
    """Load what lies at ``place`` below the fixtures: ``llama/onnx``, ``t5/onnx/encoder_model.onnx``."""
    return load(fixtures() / place)


def onnx_model(name: str, variant: str = "onnx") -> OnnxModel:
    """Load an ONNX export."""
    model = exported(f"{name}/{variant}")
    assert isinstance(model, OnnxModel)
    return model


def openvino_model(name: str, variant: str = "ov-stateful") -> OpenVINOModel:
    """Load an OpenVINO export."""
    model = exported(f"{name}/{variant}")
    assert isinstance(model, OpenVINOModel)
    return model


def ran(model: Model, *steps: Pass[Any] | str) -> PipelineResult:
    """Run passes, some perhaps as the text of a pipeline; the same ones on the same shared model run once."""
    return _ran(model, tuple(one for step in steps for one in (parse(step) if isinstance(step, str) else (step,))))


def made(model: Model, *steps: Pass[Any] | str) -> OpenVINOModel:
    """Run passes that end with a model for OpenVINO."""
    result = ran(model, *steps).model
    assert isinstance(result, OpenVINOModel)
    return result


def converted(model: Model, target: str = "cpu") -> PipelineResult:
    """Run a target's pipeline; targets with equal pipelines share the result."""
    return _ran(model, tuple(parse_target(target).pipeline(model)))


@functools.lru_cache(256)
def _ran(model: Model, passes: tuple[Pass[Any], ...]) -> PipelineResult:
    return PassManager(passes).run(model)


def reshaped(model: OpenVINOModel, batch: int) -> OpenVINOModel:
    """``model`` with the batch fixed in all its inputs."""
    copy = model.clone()
    copy.ov_model.reshape(
        {port.get_any_name(): [batch, *list(port.partial_shape)[1:]] for port in copy.ov_model.inputs}
    )
    copy.mark_edited()
    return copy
