"""Rules of transformers.js: the caches and inputs that it feeds, and models that it does not run."""

from __future__ import annotations

import pytest
from support.commands import in_process
from support.loaded import converted, exported, onnx_model
from support.models import dynamo, exporters, hybrids
from targets.web.results import config_of, ports

import graphpass
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.pipeline import parse_target
from graphpass.io import load
from graphpass.targets import check_model


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


def test_exported_names_are_refused_by_the_rules():
    model = exported("lfm2/onnx-genai")
    found = parse_target("web").predict(model, analyze_caches(model))
    refused = {finding.name: finding.reason for finding in found if finding.verdict == "refused"}
    assert "feeds no input past.0.conv" in refused["past.0.conv"]
    assert refused["past_key_values.1.key"].startswith("axis 3 of an empty cache gets size 0")
