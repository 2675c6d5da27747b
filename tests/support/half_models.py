"""Models in f16."""

from __future__ import annotations

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.pipeline import parse_target


def demoted(model: OnnxModel, target: str = "") -> tuple[OnnxModel, graphpass.Done]:
    passes = parse_target(target).pipeline(model) if target else graphpass.parse("change-precision{to=f16}")
    result = graphpass.PassManager(passes).run(model)
    made, done = result.model, result.records[-1].result
    assert isinstance(made, OnnxModel)
    assert isinstance(done, graphpass.Done)
    return made, done
