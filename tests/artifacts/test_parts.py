"""Further models and files in the folder of a language model are copied with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.models import export, vision, vision_onnx

import graphpass
from graphpass.artifacts.parts import find_folder_parts, stage_parts
from graphpass.errors import ReadError

LANGUAGE_MODEL = "openvino_language_model.xml"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder: Path = shutil.copytree(vision("llava"), tmp_path / "in")
    return folder


def test_other_models_weights_and_files_are_found(source):
    (source / ".hidden").touch()
    (source / "subfolder").mkdir()
    (source / "notes.txt").touch()
    parts = find_folder_parts(graphpass.load(source / LANGUAGE_MODEL))
    names = {model.path.name for model in parts.models}
    assert {"openvino_text_embeddings_model.xml", "openvino_vision_embeddings_model.xml"} <= names
    assert LANGUAGE_MODEL not in names
    assert {"openvino_text_embeddings_model.bin", "openvino_vision_embeddings_model.bin"} <= parts.weights.keys()
    others = set(parts.others)
    assert names < others
    assert "notes.txt" in others
    assert not {".hidden", "openvino_language_model.bin", LANGUAGE_MODEL} & others
    assert [folder.name for folder in parts.folders] == ["subfolder"]


@pytest.mark.parametrize("share", [False, True])
def test_parts_are_copied_or_shared(source, tmp_path, share):
    parts = find_folder_parts(graphpass.load(source / LANGUAGE_MODEL))
    out = tmp_path / "out"
    out.mkdir()
    shared = stage_parts(parts, out, share=share)
    assert {file.name for file in shared} == (set(parts.weights) if share else set())
    for name in (*parts.weights, *parts.others):
        assert (out / name).read_bytes() == (source / name).read_bytes()
        assert (out / name).samefile(source / name) is (share and name in parts.weights)


def test_models_in_folders_of_their_own_keep_their_folders(tmp_path):
    source = shutil.copytree(vision_onnx("qwen2_5_vl"), tmp_path / "in")
    (source / "unrelated").mkdir()
    parts = find_folder_parts(graphpass.load(source))
    assert parts.folder == source
    assert {"embedding/model.onnx.data", "vision_encoder/model.onnx.data"} == parts.weights.keys()
    assert {"embedding/model.onnx", "reference.json"} < set(parts.others)
    assert not {"decoder/model.onnx", "decoder/model.onnx.data", "config.json"} & set(parts.others)
    assert [folder.name for folder in parts.folders] == ["unrelated"]
    (tmp_path / "out").mkdir()
    stage_parts(parts, tmp_path / "out", share=False)
    for name in (*parts.weights, *parts.others):
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()


def test_models_that_read_token_ids_have_no_parts():
    assert find_folder_parts(graphpass.load(export("llama", "ov-stateful"))) is None


def test_a_language_model_alone_has_no_parts(source):
    for file in source.glob("*embeddings*"):
        file.unlink()
    for file in source.glob("*tokenizer.*"):
        file.unlink()
    assert find_folder_parts(graphpass.load(source / LANGUAGE_MODEL)) is None


def test_links_out_of_the_folder_are_refused(source, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (source / "notes.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(ReadError, match="is a link to") as error:
        find_folder_parts(graphpass.load(source / LANGUAGE_MODEL))
    assert error.value.id == "GP113"


def test_weights_that_changed_since_are_refused(source, tmp_path):
    parts = find_folder_parts(graphpass.load(source / LANGUAGE_MODEL))
    with (source / "openvino_text_embeddings_model.bin").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ReadError) as error:
        stage_parts(parts, tmp_path, share=False)
    assert error.value.id == "GP110"
