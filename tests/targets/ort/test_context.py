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
        ({"max_position_embeddings": -1, "n_positions": 16}, 16),
        ({"max_position_embeddings": "64"}, None),
        ({"text_config": {"n_ctx": 8}, "n_ctx": 32}, 8),
        ({}, None),
    ],
)
def test_keys_of_transformers(tmp_path, content, length):
    assert context_length(beside(tmp_path, content)) == length


def test_a_missing_configuration_is_empty(tmp_path):
    assert configuration(None) == configuration(tmp_path / "model.onnx") == {}
    assert context_length(None) is None


@pytest.mark.parametrize("content", ["[1]", "{", ""])
def test_other_files_are_refused(tmp_path, content):
    with pytest.raises(ReadError, match="GP116"):
        configuration(beside(tmp_path, content))
