"""Fixture models, loaded and converted once a worker."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse_target
from graphpass.io import load
from graphpass.model_files import find_model
from support.models import fixtures
from support.pipelines import sequence_of

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
    return _shared_model(load(file), str(file))


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


def run_once(model: Model, *steps: Pass[Any] | str) -> PipelineResult:
    """Run passes or the text of pipelines; the same ones on the same shared model run once."""
    return _run_once(model, sequence_of(*steps))


def openvino_after(model: Model, *steps: Pass[Any] | str) -> OpenVINOModel:
    """Run passes that end with a model for OpenVINO."""
    result = run_once(model, *steps).model
    assert isinstance(result, OpenVINOModel)
    return result


def converted(model: Model, target: str = "cpu") -> PipelineResult:
    """Run a target's pipeline; targets with equal pipelines share the result."""
    return _run_once(model, tuple(parse_target(target).pipeline(model)))


@functools.lru_cache(256)
def _run_once(model: Model, passes: tuple[Pass[Any], ...]) -> PipelineResult:
    result = PassManager(passes).run(model)
    _shared_model(result.model, f"{model.path} after {', '.join(step.name for step in passes)}")
    return result


#: Shared models, by what they are, with their sizes when they were made.
_shared: weakref.WeakKeyDictionary[Model, tuple[str, int]] = weakref.WeakKeyDictionary()


def _shared_model(model: Model, what: str) -> Model:
    _shared[model] = what, _size(model)
    return model


def _size(model: Model) -> int:
    return model.proto.ByteSize() if isinstance(model, OnnxModel) else len(model.ov_model.get_ops())


def edited_shared_models() -> list[str]:
    """Return the names of shared models that a test edited."""
    return [what for model, (what, size) in _shared.items() if _size(model) != size]


def reshaped(model: OpenVINOModel, batch: int) -> OpenVINOModel:
    """``model`` with the batch fixed in all its inputs."""
    copy = model.clone()
    copy.ov_model.reshape(
        {port.get_any_name(): [batch, *list(port.partial_shape)[1:]] for port in copy.ov_model.inputs}
    )
    copy.mark_edited()
    return copy
