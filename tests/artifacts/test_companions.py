import json
import shutil

import pytest
from support.models import export

from graphpass.artifacts.companions import companions, copy_companions
from graphpass.errors import ReadError
from graphpass.storage.staging import staging


def names(model, variant, file, dialect):
    return {path.name for path in companions(export(model, variant) / file, dialect)}


def test_everything_beside_a_model_but_models_travels():
    folder = export("llama", "ov-stateful")
    everything = {file.name for file in folder.iterdir()} - {"openvino_model.xml", "openvino_model.bin"}
    assert names("llama", "ov-stateful", "openvino_model.xml", "openvino") == everything


def test_configurations_of_the_onnx_file_stay_with_onnx():
    assert "genai_config.json" in names("llama", "onnx-genai", "model.onnx", "onnx")
    openvino = names("llama", "onnx-genai", "model.onnx", "openvino")
    assert "genai_config.json" not in openvino
    assert {"tokenizer.json", "tokenizer_config.json"} <= openvino


def test_data_files_are_not_companions():
    assert not {"model.onnx", "model.onnx.data"} & names("llama", "onnx-genai", "model.onnx", "onnx")


def test_companions_are_copied(tmp_path):
    source = export("whisper", "ov-stateful")
    with staging(tmp_path / "out") as folder:
        copied = copy_companions(source / "openvino_decoder_model.xml", folder)
        assert all(file.parent == folder for file in copied)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "whisper"
    for file in (tmp_path / "out").iterdir():
        assert file.read_bytes() == (source / file.name).read_bytes()


def test_a_model_alone_has_no_companions(tmp_path):
    assert companions(tmp_path / "model.onnx") == ()


def test_links_to_elsewhere_are_not_followed(tmp_path):
    (tmp_path / "secret").write_text("secret")
    shutil.copytree(export("llama", "ov-stateful"), tmp_path / "in")
    (tmp_path / "in" / "config.json").unlink()
    (tmp_path / "in" / "config.json").symlink_to(tmp_path / "secret")
    with pytest.raises(ReadError, match=r"GP113: .*config\.json is a link to .*secret, outside"):
        companions(tmp_path / "in" / "openvino_model.xml")


def test_links_of_a_download_cache_are_followed(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    shutil.copytree(export("llama", "ov-stateful"), blobs)
    snapshot.mkdir()
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(file)
    found = companions(snapshot / "openvino_model.xml")
    assert [file.name for file in found] == [file.name for file in companions(blobs / "openvino_model.xml")]
