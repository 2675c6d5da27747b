"""Target `web`: the folder that transformers.js loads, and the models that it cannot run."""

from __future__ import annotations

import json
import shutil

import onnx
import pytest
from support.commands import in_process
from support.loaded import converted, exported, onnx_model, run_once
from support.models import dynamo, export, exporters, hybrids

import graphpass
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx import shards
from graphpass.engine.pipeline import parse_target
from graphpass.io import load
from graphpass.targets import check_model


def config_of(model, target="web"):
    return json.loads(parse_target(target).files(model, model.path)["config.json"])


def ports(model):
    return [port.name for port in (*model.inputs, *model.outputs) if port.name.startswith(("past", "present"))]


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


def test_types_of_the_model_name_the_file():
    web = parse_target("web")
    assert web.file_for(exported("llama/onnx-fp16")) == "onnx/model_fp16.onnx"
    assert config_of(exported("llama/onnx-fp16"))["transformers.js_config"]["dtype"] == "fp16"
    assert parse_target("web{dtype=fp32}").file_for(exported("llama/onnx-fp16")) == "onnx/model.onnx"


def test_names_and_sizes_of_a_hybrid_without_configuration():
    result = converted(exported("lfm2/onnx-genai"), "web").model
    assert {"past_conv.0", "present_conv.0", "past_key_values.1.key", "present.1.value"} <= set(ports(result))
    config = config_of(result)
    assert config["model_type"] == "lfm2"
    assert config["layer_types"][:2] == ["conv", "full_attention"]
    # Sizes that only the dataflow shows: transformers.js takes 0 for symbols.
    shapes = {port.name: port.shape for port in result.inputs}
    assert shapes["past_key_values.1.key"] == ("batch_size", 2, "past_sequence_length", 16)
    assert graphpass.verify(exported("lfm2/onnx-genai"), result, steps=2).passed


@pytest.mark.slow
def test_names_of_recurrent_states():
    model = load(hybrids() / "qwen3_next_dense" / "onnx-raw")
    result = converted(model, "web").model
    assert {"past_conv.0", "past_recurrent.0", "present_recurrent.0"} <= set(ports(result))
    assert config_of(result)["model_type"] == "qwen3_next"


@pytest.mark.slow
def test_latent_caches_are_called_key_and_value():
    result = converted(load(dynamo("deepseek_v3") / "onnx-18"), "web").model
    assert {"past_key_values.0.key", "past_key_values.0.value"} <= set(ports(result))


def test_a_multimodal_type_is_replaced():
    result = converted(load(exporters("mobius", "qwen3_5_text")), "web").model
    assert config_of(result)["model_type"] == "qwen3_next"
    (found,) = [
        one for one in check_model(result, "web", confirm=False).findings if one.reason and "names" in one.reason
    ]
    assert (
        found.reason == "there is no decoder of type qwen3_5_text with such caches: config.json names type qwen3_next"
    )


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
    ("place", "words"),
    [
        ("llama/onnx-nocache", "it counts past positions by a cache of keys, and the model has none"),
        ("mamba/onnx-raw", "its input input_ids is of fixed length 1"),
        ("t5/onnx/decoder_with_past_model.onnx", "it reads states of an encoder"),
    ],
)
def test_unsupported_models_are_refused(place, words, capfd, tmp_path):
    model = exported(place)
    done = in_process(capfd, "convert", model.path, "-o", tmp_path / "out", "--target", "web")
    assert done.code != 0
    assert "GP399" in done.err
    assert words in done.err
    assert not (tmp_path / "out").exists()
    (finding, *_) = parse_target("web").predict(model, analyze_caches(model))
    assert finding.verdict == "refused"


def test_an_unfed_input_is_named():
    model = onnx_model("llama")
    rewriter = model.rewriter()
    tokens = model.graph.parameters["input_ids"]
    rewriter.redirect_uses(tokens, rewriter.under("x").op("Add", tokens, rewriter.input("shift", "i64", [1])))
    rewriter.finish()
    reason = parse_target("web").predict(model, analyze_caches(model))[0].reason
    assert reason == "its input shift is not fed: run fix-input{input=shift} if it is a setting"


def test_ir_is_refused():
    with pytest.raises(graphpass.GraphpassError, match="GP366"):
        parse_target("web").pipeline(exported("llama/ov-stateful"))


def test_exported_names_are_refused_by_the_rules():
    model = exported("lfm2/onnx-genai")
    found = parse_target("web").predict(model, analyze_caches(model))
    refused = {finding.name: finding.reason for finding in found if finding.verdict == "refused"}
    assert "feeds no input past.0.conv" in refused["past.0.conv"]
    assert refused["past_key_values.1.key"].startswith("axis 3 of an empty cache gets size 0")


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


def test_weights_over_the_limit_of_protobuf_are_sharded(tmp_path):
    model = run_once(exported("llama/onnx"), "reshape-by-constants").model
    assert shards.count_shards(model) == 0
    assert shards.count_shards(model, limit=2**10) == 1
    shards.stage_sharded(model, tmp_path, "model.onnx", limit=2**10)
    assert load(tmp_path).digest() == model.digest()
