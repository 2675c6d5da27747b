"""Model files are found in the folders that exporters and hubs write."""

import shutil
from pathlib import Path

import pytest
from support.models import export, vision_onnx

from graphpass.artifacts.companions import companions
from graphpass.dialects.reading import read_file
from graphpass.errors import ReadError, UsageError
from graphpass.model_files import configuration_folder, find_model, models_below, models_beside, parts_of


def test_find_model_leaves_tokenizers_out():
    assert find_model(export("llama", "ov-stateful")).name == "openvino_model.xml"


def test_models_in_a_folder_of_a_hub_repository(tmp_path):
    model = hub_repository(tmp_path)
    assert (find_model(tmp_path), configuration_folder(model)) == (model, tmp_path)
    assert [file.name for file in companions(model)] == ["config.json", "tokenizer.json"]
    shutil.copy(model, model.with_name("model_q4.onnx"))
    with pytest.raises(UsageError, match=r"GP201: .*onnx has several models: model.onnx, model_q4.onnx"):
        find_model(tmp_path)
    assert configuration_folder(model) == tmp_path


def test_a_configuration_beside_the_model_comes_first(tmp_path):
    model = hub_repository(tmp_path)
    shutil.copy(tmp_path / "config.json", model.parent)
    assert configuration_folder(model) == model.parent


def test_a_configuration_of_another_model_is_not_used(tmp_path):
    model = hub_repository(tmp_path)
    shutil.copy(model, tmp_path)
    assert configuration_folder(model) == model.parent
    assert find_model(tmp_path) == tmp_path / "model.onnx"


def hub_repository(folder: Path) -> Path:
    """Fill a folder as repositories of the Hugging Face hub are; return the model's file."""
    (folder / "onnx").mkdir()
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(export("llama", "onnx") / name, folder)
    return Path(shutil.copy(export("llama", "onnx") / "model.onnx", folder / "onnx"))


def test_models_of_a_folder_may_have_folders_of_their_own(tmp_path):
    folder = shutil.copytree(vision_onnx("qwen2_5_vl"), tmp_path / "in")
    files = [folder / name / "model.onnx" for name in ("decoder", "embedding", "vision_encoder")]
    assert models_below(folder) == files
    assert find_model(folder) == files[0]
    assert parts_of(files[0]) == (folder, files)
    assert [*models_beside(read_file(files[0]))] == files[1:]
    for name in ("config.json", "genai_config.json"):
        assert configuration_folder(files[0]) == folder
        (folder / name).unlink()
    # Without a configuration above them, folders beside each other are of separate models.
    assert parts_of(files[0]) == (files[0].parent, [files[0]])
    with pytest.raises(ReadError, match="GP103"):
        find_model(folder)


def test_find_model_refuses_other_paths(tmp_path):
    with pytest.raises(ReadError, match=r"GP101: .*nothing-here does not exist"):
        find_model(tmp_path / "nothing-here")
    with pytest.raises(ReadError, match="GP103"):
        find_model(tmp_path)
    (tmp_path / "model.bin").touch()
    with pytest.raises(ReadError, match="GP102"):
        find_model(tmp_path / "model.bin")
    with pytest.raises(UsageError, match=r"GP201: .*decoder_model"):
        find_model(export("t5", "onnx"))
