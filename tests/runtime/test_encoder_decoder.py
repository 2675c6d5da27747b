"""Files of an encoder and its decoders, by the names of optimum and of onnxruntime-genai's builder."""

import shutil

import pytest
from support.models import export

from graphpass.errors import UsageError
from graphpass.runtime.encoder_decoder import find_encoder_decoder, folder_of_part, read_parts

OPTIMUM = ["encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"]
MERGED = ["encoder_model.onnx", "decoder_model_merged.onnx"]
BUILDER = ["encoder.onnx", "decoder.onnx"]


def folder_with(tmp_path, names):
    for name in names:
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (OPTIMUM, ("encoder_model.onnx", "decoder_with_past_model.onnx", "decoder_model.onnx")),
        (MERGED, ("encoder_model.onnx", "decoder_model_merged.onnx", "decoder_model_merged.onnx")),
        ([*OPTIMUM, MERGED[1]], ("encoder_model.onnx", "decoder_with_past_model.onnx", "decoder_model.onnx")),
        ([MERGED[1], *OPTIMUM[:2]], ("encoder_model.onnx", "decoder_model_merged.onnx", "decoder_model_merged.onnx")),
        (BUILDER, ("encoder.onnx", "decoder.onnx", None)),
    ],
)
def test_files_are_found_by_name(tmp_path, names, found):
    files = find_encoder_decoder(folder_with(tmp_path, names))
    assert tuple(file and file.name for file in (files.encoder, files.decoder, files.first)) == found
    assert files.merged is (found[1] == found[2])


def test_a_stateful_decoder_computes_the_first_step():
    files = find_encoder_decoder(export("t5", "ov-stateful"))
    assert (files.decoder.name, files.first) == ("openvino_decoder_model.xml", None)
    models = read_parts(files)
    assert models.first is None
    assert any(models.decoder.graph.of_op("ReadValue"))


@pytest.mark.parametrize("names", [["model.onnx"], ["decoder_model.onnx"], ["encoder.onnx"], []])
def test_other_folders_have_no_encoder(tmp_path, names):
    assert find_encoder_decoder(folder_with(tmp_path, names)) is None


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["encoder_model.onnx"], "but no decoder"),
        ([OPTIMUM[0], OPTIMUM[2]], "which fills the caches of cross attention"),
        ([*OPTIMUM, "openvino_encoder_model.xml"], "in ONNX and one in OpenVINO IR"),
    ],
)
def test_incomplete_folders_are_refused(tmp_path, names, reason):
    with pytest.raises(UsageError, match=reason) as error:
        find_encoder_decoder(folder_with(tmp_path, names))
    assert error.value.id == "GP225"


def test_a_decoder_without_caches_is_refused(tmp_path):
    for name in OPTIMUM[:2]:
        shutil.copy(export("t5", "onnx") / name, tmp_path)
    with pytest.raises(UsageError, match=r"has no caches, but not decoder_with_past_model\.onnx") as error:
        find_encoder_decoder(tmp_path)
    assert error.value.id == "GP225"


@pytest.mark.parametrize("names", [OPTIMUM, MERGED, BUILDER])
def test_parts_belong_to_their_folder(tmp_path, names):
    folder_with(tmp_path, [*names, "model.onnx"])
    assert {folder_of_part(tmp_path / name) for name in names} == {tmp_path}
    assert folder_of_part(tmp_path / "model.onnx") is None
    (tmp_path / names[0]).unlink()
    assert folder_of_part(tmp_path / names[1]) is None


def test_a_merged_decoder_is_read_once():
    files = find_encoder_decoder(export("whisper", "onnx"))
    read = []
    read_parts(files, lambda file: read.append(file.name) or file.name)
    assert len(read) == len(set(read)) == 3 - files.merged
