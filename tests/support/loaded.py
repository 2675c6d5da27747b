"""Fixture models, loaded and converted once a worker."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse, parse_target
from graphpass.io import find_model, load
from support.models import fixtures

if TYPE_CHECKING:
    from pathlib import Path

    from graphpass.engine.manager import PipelineResult
    from graphpass.engine.passes import Pass
    from graphpass.ir.model import Model


def exported(place: str) -> Model:
    """Share what lies at ``place`` below the fixtures: ``llama/onnx``, ``t5/onnx/encoder_model.onnx``.

    Tests share what this and the functions below return: whoever wants to edit it, clones it.
    """
    return _loaded(find_model(fixtures() / place))


@functools.cache
def _loaded(file: Path) -> Model:
    return _noted(load(file), str(file))


def onnx_model(name: str, variant: str = "onnx") -> OnnxModel:
    """Load an ONNX export for one test alone."""
    model = exported(f"{name}/{variant}").clone()
    assert isinstance(model, OnnxModel)
    return model


def openvino_model(name: str, variant: str = "ov-stateful") -> OpenVINOModel:
    """Load an OpenVINO export for one test alone."""
    model = exported(f"{name}/{variant}").clone()
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
    result = PassManager(passes).run(model)
    _noted(result.model, f"{model.path} after {', '.join(step.name for step in passes)}")
    return result


#: Shared models, by what they are, with their sizes when they were made.
_shared: weakref.WeakKeyDictionary[Model, tuple[str, int]] = weakref.WeakKeyDictionary()


def _noted(model: Model, what: str) -> Model:
    _shared[model] = what, _size(model)
    return model


def _size(model: Model) -> int:
    return model.proto.ByteSize() if isinstance(model, OnnxModel) else len(model.ov_model.get_ops())


def edited_all_the_same() -> list[str]:
    """Name the shared models that are not as they were made."""
    return [what for model, (what, size) in _shared.items() if _size(model) != size]


def reshaped(model: OpenVINOModel, batch: int) -> OpenVINOModel:
    """``model`` with the batch fixed in all its inputs."""
    copy = model.clone()
    copy.ov_model.reshape(
        {port.get_any_name(): [batch, *list(port.partial_shape)[1:]] for port in copy.ov_model.inputs}
    )
    copy.mark_edited()
    return copy
