"""Entries of genai_config.json, and models that onnxruntime-genai's generic decoder does not support."""

import json
from pathlib import Path

import pytest

from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.targets import check_model
from graphpass.targets.ort.genai_config import genai_config, require_sizes, sizes_and_tokens, why_no_generic_decoder
from graphpass.testing import Family, parse_model, tiny_model


@pytest.mark.parametrize(
    ("config", "generation", "entries"),
    [
        ({}, {}, {}),
        ({"eos_token_id": 2}, {}, {"eos_token_id": 2, "pad_token_id": 2}),
        (
            {"eos_token_id": [5, 2], "bos_token_id": 1},
            {},
            {"bos_token_id": 1, "eos_token_id": [5, 2], "pad_token_id": 5},
        ),
        ({"eos_token_id": 2, "pad_token_id": 0}, {}, {"eos_token_id": 2, "pad_token_id": 0}),
        ({"eos_token_id": 2}, {"eos_token_id": 7, "pad_token_id": None}, {"eos_token_id": 7, "pad_token_id": 7}),
        ({"pad_token_id": 0}, {"pad_token_id": None}, {"pad_token_id": 0}),
        ({"eos_token_id": None}, {"eos_token_id": []}, {"eos_token_id": []}),
    ],
)
def test_special_tokens(tmp_path, config, generation, entries):
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    found = sizes_and_tokens(tmp_path / "model.onnx", 64, 9)
    assert found == {"vocab_size": 9, "context_length": 64, **entries}


LLAMA = tiny_model("llama", layers=2)


def test_a_decoder_of_keys_and_values():
    config = json.loads(genai_config(LLAMA, None, 128))
    decoder = config["model"]["decoder"]
    assert (decoder["num_hidden_layers"], decoder["inputs"]["past_key_names"]) == (2, "past.%d.key")
    assert (config["model"]["context_length"], config["search"]["past_present_share_buffer"]) == (128, False)
    assert "session_options" not in decoder
    cuda = json.loads(genai_config(LLAMA, None, 128, "cuda"))["model"]["decoder"]
    assert cuda["session_options"] == {"provider_options": [{"cuda": {}}]}


def test_the_number_of_positions_must_be_known(tmp_path):
    with pytest.raises(PreconditionError, match="GP396: the number of positions is not known"):
        require_sizes(LLAMA, None, None)
    (tmp_path / "config.json").write_text('{"n_ctx": 32}')
    assert require_sizes(LLAMA, tmp_path / "model.onnx", None) == (32, 64)
    assert require_sizes(LLAMA, tmp_path / "model.onnx", 16) == (16, 64)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (LLAMA, None),
        (tiny_model(Family(convolution=True), layers=2), None),
        (parse_model("%x = Parameter : f32[4]\n%y = Relu(%x)\nResult(%y) {name=logits}"), "0 caches of keys"),
    ],
)
def test_supported_forms(model, reason):
    found = why_no_generic_decoder(model)
    assert found is None if not reason else reason in found


def renamed(model, old, new):
    copy = model.clone()
    for port in (*copy.proto.graph.input, *copy.proto.graph.output):
        if port.name == old:
            port.name = new
    for node in copy.proto.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    copy.mark_edited()
    return copy


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("past.1.key", "other.1.key", "do not follow one template"),
        ("position_ids", "places", "its input places is not fed"),
        ("position_ids", "inputs_embeds", "export the model with its embedding, or use target ort"),
        ("logits", "scores", "it has no output logits"),
    ],
)
def test_names_that_are_not_read(old, new, reason):
    assert reason in why_no_generic_decoder(renamed(LLAMA, old, new))
    if new != "scores":
        with pytest.raises(UnsupportedError, match="GP397"):
            genai_config(renamed(LLAMA, old, new), None, 8)


def test_several_windows_of_a_layer_are_counted():
    model = tiny_model(Family(convolution=True), layers=3)
    assert why_no_generic_decoder(model) is None
    reason = "2 caches of role conv have the number 0, expected one in a layer"
    assert reason in why_no_generic_decoder(renamed(model, "past.2.conv", "past.0.other"))


def test_layers_may_have_heads_of_other_sizes():
    """Gemma 4: onnxruntime-genai allocates the shape that each layer's input of keys declares."""
    model = parse_model((Path(__file__).parent / "two_head_sizes.graph").read_text(), "onnx")
    assert why_no_generic_decoder(model) is None
    assert check_model(model, "ort-genai{context=64}").confirmation.outcome == "confirmed"
