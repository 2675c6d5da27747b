"""insert-position-ids: an input for NPUW that changes nothing, where a model needs no positions."""

from __future__ import annotations

import functools

import pytest
from support.decode import compiled, greedy
from support.loaded import openvino_model
from support.models import export, reference
from support.piped import piped

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Changed, Skipped
from graphpass.passes.attention.insert_position_ids import InsertPositionIds


@functools.cache
def before(name: str) -> OpenVINOModel:
    model = graphpass.load(export(name, "onnx"))
    converted = PassManager(graphpass.get_target("cpu").pipeline(model)).run(model).model
    assert isinstance(converted, OpenVINOModel)
    return converted


def run(model: OpenVINOModel) -> tuple[OpenVINOModel, object]:
    return piped(model, InsertPositionIds())


@pytest.mark.parametrize("name", ["bloom", "falcon_alibi"])
def test_models_with_alibi(name, tmp_path):
    after, result = run(before(name))
    assert isinstance(result, Changed)
    port = next(port for port in after.inputs if port.name == "position_ids")
    assert (port.shape, port.element_type) == ((None, None), "i64")
    graphpass.save(after, tmp_path / "model.xml")
    expected = reference(name)
    model = compiled(graphpass.load(tmp_path / "model.xml").ov_model)
    assert any("position_ids" in port.get_names() for port in model.inputs)
    assert greedy(model.create_infer_request(), [expected["prompt_ids"]], 12) == [expected["greedy_ids"]]


def test_twice():
    once, _ = run(before("bloom"))
    assert isinstance(run(once)[1], Skipped)


def test_models_that_count_positions_are_left_to_another_pass():
    model = openvino_model("lfm2")
    after, result = run(model)
    assert isinstance(result, Skipped)
    assert after.digest() == model.digest()
