"""Comparisons by path or of loaded models."""

import pytest
from support.models import export

import graphpass
from graphpass.errors import UsageError
from graphpass.testing import run, tiny_model
from graphpass.verify.models import verify


def test_models_are_read_from_files_folders_and_memory(tmp_path):
    model = tiny_model("llama", layers=1)
    graphpass.save(model, tmp_path / "a" / "model.onnx")
    graphpass.save(run(model, "to-openvino"), tmp_path / "b" / "openvino_model.xml")
    for pair in ((tmp_path / "a", tmp_path / "b" / "openvino_model.xml"), (str(tmp_path / "a"), model)):
        assert verify(*pair, steps=0).passed


def test_prompts_and_tolerances_are_settings():
    model = tiny_model("llama", layers=1)
    found = verify(model, run(model, "fuse-functions"), steps=0, prompt_ids=[7, 8, 9], atol=1e-3, rtol=0.0)
    assert found.sequences[0].prompt_ids == ((7, 8, 9),)
    with pytest.raises(UsageError):
        verify(model, model, prompt_ids=[64])


@pytest.mark.parametrize(
    "option", [{"edits": True}, {"padding": "right"}, {"device": "GPU"}, {"budget": "1s"}, {"prompt_ids": [1]}]
)
def test_encoders_with_decoders_accept_few_options(option):
    with pytest.raises(UsageError, match="steps, atol and rtol alone") as error:
        verify(export("t5", "onnx"), export("t5", "ov-stateful"), **option)
    assert error.value.id == "GP250"
