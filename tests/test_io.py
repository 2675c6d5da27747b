import shutil

import pytest
from support.models import export

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.io import load, save


def test_load_picks_the_dialect():
    assert isinstance(load(export("llama", "onnx")), OnnxModel)
    assert isinstance(load(str(export("llama", "ov-stateful"))), OpenVINOModel)


@pytest.mark.parametrize("variant", ["onnx", "ov-stateful"])
def test_save_and_load(tmp_path, variant):
    model = load(export("llama", variant))
    save(model, tmp_path / "out" / model.path.name)
    again = load(tmp_path / "out")
    assert again.digest() == model.digest()
    assert again.inputs == model.inputs
    assert again.outputs == model.outputs


@pytest.mark.parametrize("variant", ["onnx", "ov-stateful"])
def test_analyses_are_kept_until_the_model_is_edited(variant):
    model = load(export("llama", variant))
    calls = []

    def count(model):
        calls.append(model)
        return len(calls)

    assert [model.analysis(count), model.analysis(count)] == [1, 1]
    assert model.clone().analysis(count) == 2
    model.mark_edited()
    assert model.analysis(count) == 3
    assert model.edited


def test_a_model_can_be_moved_after_it_was_read(tmp_path):
    folder = tmp_path / "a"
    shutil.copytree(export("llama", "ov-stateful"), folder)
    model = load(folder)
    digest = model.digest()
    folder.rename(tmp_path / "b")
    save(model, tmp_path / "c" / "model.xml")
    assert load(tmp_path / "c").digest() == digest
