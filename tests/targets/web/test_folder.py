"""The configuration in a folder for transformers.js."""

from __future__ import annotations

import json
import shutil

import onnx
import pytest
from support.loaded import exported
from support.models import export
from targets.web.results import config_of

from graphpass.dialects.onnx import shards
from graphpass.engine.pipeline import parse_target
from graphpass.io import load
from graphpass.targets.web.folder import config_file, data_type_of
from graphpass.testing import run, tiny_model


def test_types_of_the_model_name_the_file():
    web = parse_target("web")
    assert web.file_for(exported("llama/onnx-fp16")) == "onnx/model_fp16.onnx"
    assert config_of(exported("llama/onnx-fp16"))["transformers.js_config"]["dtype"] == "fp16"
    assert parse_target("web{dtype=fp32}").file_for(exported("llama/onnx-fp16")) == "onnx/model.onnx"


def test_other_configurations_keep_their_entries(tmp_path):
    shutil.copytree(export("falcon", "onnx"), tmp_path / "falcon")
    file = tmp_path / "falcon" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"multi_query": True}))
    config = config_of(load(tmp_path / "falcon"))
    # transformers.js would look for one tensor of keys and values.
    assert "multi_query" not in config
    assert config["model_type"] == "llama"
    assert config["vocab_size"] == 320


@pytest.mark.parametrize(
    ("passes", "kind"),
    [
        ("", "fp32"),
        ("change-precision{to=f16}", "fp16"),
        ("quantize-weights", "q4"),
        ("quantize-weights,change-precision{to=f16}", "q4f16"),
    ],
)
def test_types_of_weights_and_caches(passes, kind):
    model = tiny_model("llama", layers=1)
    assert data_type_of(run(model, passes) if passes else model) == kind


def test_data_files_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SHARD", 2**14)
    onnx.save(
        tiny_model("llama", layers=1).proto,
        tmp_path / "model.onnx",
        save_as_external_data=True,
        location="weights",
        size_threshold=0,
    )
    config = json.loads(config_file(load(tmp_path), None, "wasm", "onnx/model_q4.onnx"))
    settings = config["transformers.js_config"]
    assert (settings["dtype"], settings["device"]) == ("q4", "wasm")
    assert settings["use_external_data_format"] == {"model_q4.onnx": shards.count_shards(load(tmp_path))}
    assert settings["use_external_data_format"]["model_q4.onnx"] > 1
    assert config["model_type"] == "llama"
