"""Target `web`: the folder that transformers.js loads, and the models that it cannot run."""

from __future__ import annotations

import json
import shutil

import onnx
import pytest
from support.commands import in_process
from support.loaded import converted, exported
from support.models import export, exporters

import graphpass
from graphpass.dialects.onnx import shards
from graphpass.engine.pipeline import parse_target
from graphpass.io import load
from graphpass.targets import check_model


def test_the_folder_has_the_layout_of_transformers_js(tmp_path, capfd):
    source = tmp_path / "source"
    shutil.copytree(export("llama", "onnx"), source)
    (source / "genai_config.json").write_text("{}")
    done = in_process(capfd, "convert", source, "-o", tmp_path / "out", "--target", "web", "--no-verify")
    assert done.code == 0
    files = {str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out").rglob("*") if file.is_file()}
    assert files >= {"onnx/model.onnx", "config.json", "generation_config.json", "tokenizer.json", "graphpass.json"}
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["transformers.js_config"] == {"dtype": "fp32", "device": "webgpu"}
    assert config["model_type"] == "llama"
    # A second run replaces the result, and another type stands in a folder of its own.
    assert in_process(capfd, "convert", source, "-o", tmp_path / "out", "--target", "web", "--no-verify").code == 0
    other = ("--target", "web{dtype=fp16}", "--no-verify")
    assert "GP238" in in_process(capfd, "convert", source, "-o", tmp_path / "out", *other).err
    assert in_process(capfd, "convert", source, "-o", tmp_path / "half", *other).code == 0
    assert (tmp_path / "half" / "onnx" / "model_fp16.onnx").is_file()
    report = check_model(load(tmp_path / "out" / "onnx" / "model.onnx"), "web", confirm=False)
    assert report.holds


def test_the_result_is_equal_except_for_omitted_logits():
    result = converted(exported("llama/onnx"), "web").model
    (count,) = [port for port in result.inputs if port.name == "num_logits_to_keep"]
    assert (count.shape, count.element_type) == ((), "i64")
    assert graphpass.verify(exported("llama/onnx"), result, steps=2).passed


def test_token_ids_become_i64_and_packed_caches_are_split():
    """GPT-2 by ONNX Runtime's script has i32 inputs, and attention that stores keys and values in one tensor."""
    source = load(exporters("ort-script", "gpt2"))
    result = converted(source, "web{device=wasm}").model
    types = {port.name: port.element_type for port in result.inputs}
    assert {types[name] for name in ("input_ids", "attention_mask", "position_ids")} == {"i64"}
    assert "past_key_values.1.value" in types
    assert sum(1 for _ in result.graph.of_op("GroupQueryAttention")) == 2


def test_ir_is_refused():
    with pytest.raises(graphpass.GraphpassError, match="GP366"):
        parse_target("web").pipeline(exported("llama/ov-stateful"))


@pytest.mark.slow
def test_weights_are_laid_out_in_shards(tmp_path, monkeypatch, capfd):
    source = tmp_path / "source"
    source.mkdir()
    proto = onnx.load(export("llama", "onnx") / "model.onnx")
    onnx.save(proto, source / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    shutil.copy(export("llama", "onnx") / "config.json", source)
    monkeypatch.setattr(shards, "SHARD", 2**18)
    out = tmp_path / "out"
    done = in_process(capfd, "convert", source, "-o", out, "--target", "web")
    assert (done.code, done.err) == (0, "")
    names = {file.name for file in (out / "onnx").iterdir()}
    count = json.loads((out / "config.json").read_text())["transformers.js_config"]["use_external_data_format"]
    assert names == {"model.onnx", *shards.shard_names("model.onnx", count["model.onnx"])}
    assert count["model.onnx"] > 1
    assert all((out / "onnx" / name).stat().st_size <= 2**18 for name in names if name != "model.onnx")
    assert graphpass.verify(source, out / "onnx", steps=1).passed
    assert in_process(capfd, "verify", "--certificate", out).code == 0
    share = in_process(capfd, "convert", source, "-o", out, "--target", "web", "--weights", "share")
    assert "GP230" in share.err
    monkeypatch.setattr(shards, "SHARD", 2**12)
    before = {file: file.read_bytes() for file in (out / "onnx").iterdir()}
    assert "GP399" in in_process(capfd, "convert", source, "-o", out, "--target", "web", "--no-verify").err
    assert {file: file.read_bytes() for file in (out / "onnx").iterdir()} == before
