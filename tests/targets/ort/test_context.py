"""Number of positions from the configuration beside a model."""

import json

import pytest

from graphpass.errors import ReadError
from graphpass.targets.ort.context import configuration, context_length


def beside(folder, content):
    (folder / "config.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder / "model.onnx"


@pytest.mark.parametrize(
    ("content", "length"),
    [
        ({"max_position_embeddings": 64, "n_ctx": 32}, 64),
        ({"n_ctx": 32}, 32),
        ({"model_max_length": 48}, 48),
        ({"max_position_embeddings": -1, "n_positions": 16}, 16),
        ({"max_position_embeddings": "64"}, None),
        ({"text_config": {"n_ctx": 8}, "n_ctx": 32}, 8),
        ({}, None),
    ],
)
def test_keys_of_transformers(tmp_path, content, length):
    assert context_length(beside(tmp_path, content)) == length


@pytest.mark.parametrize(("content", "length"), [(None, 96), ({}, 96), ({"n_ctx": 32}, 32)])
def test_genai_config_is_read_without_a_number_in_config(tmp_path, content, length):
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": {"context_length": 96}}))
    model = tmp_path / "model.onnx" if content is None else beside(tmp_path, content)
    assert context_length(model) == length


def test_genai_config_is_not_read_if_config_has_the_number(tmp_path):
    (tmp_path / "genai_config.json").write_text("{")
    assert context_length(beside(tmp_path, {"n_ctx": 32})) == 32


def test_a_missing_configuration_is_empty(tmp_path):
    assert configuration(None) == configuration(tmp_path / "model.onnx") == {}
    assert context_length(None) is None


@pytest.mark.parametrize("content", ["[1]", "{", ""])
def test_other_files_are_refused(tmp_path, content):
    with pytest.raises(ReadError, match="GP116"):
        configuration(beside(tmp_path, content))
