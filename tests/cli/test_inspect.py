import io
import json
import os
import subprocess
import sys

import pytest
from support.commands import in_process
from support.loaded import exported
from support.models import export
from support.quick_cases import model_files, quick_files
from support.report_schemas import assert_valid_report, schema_validator

import graphpass

KEYS = ["format", "kind", "stateful", "caches", "attention", "group_query_attention", "inputs", "outputs"]
KEYS += ["runtime_options", "totals", "views", "warnings", "unpaired_inputs", "unpaired_outputs"]
CACHE_KEYS = ["name", "kind", "role", "layer", "axes", "shape", "element_type", "read", "write", "evidence", "bits"]
CACHE_KEYS += ["index", "bytes_per_token", "fixed_bytes"]
ATTENTION_KEYS = ["node", "form", "key", "value", "fusable", "reason", "layer", "heads", "key_heads", "head_dim"]
ATTENTION_KEYS += ["value_head_dim", "scale", "factors", "mask", "softcap", "sinks", "window", "window_in"]


def inspected(capfd, model, variant):
    done = in_process(capfd, "inspect", export(model, variant), "--format", "json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


@pytest.mark.parametrize("variant", ["onnx", "ov-stateless", "ov-stateful"])
def test_json_is_one_object_with_the_documented_keys(capfd, variant):
    found = inspected(capfd, "llama", variant)
    assert list(found) == ["schema_version", "graphpass", "time", *KEYS]
    assert found["format"] == ("onnx" if variant == "onnx" else "openvino")
    assert found["kind"] == "kv"
    assert found["stateful"] is (variant == "ov-stateful")
    assert [(cache["kind"], cache["role"], cache["layer"]) for cache in found["caches"]] == [
        ("kv", "key", 0),
        ("kv", "value", 0),
        ("kv", "key", 1),
        ("kv", "value", 1),
    ]
    for cache in found["caches"]:
        assert list(cache) == CACHE_KEYS
        assert cache["axes"] == {"batch": 0, "heads": 1, "sequence": 2, "head_dim": 3}
        assert cache["shape"] == [None, 2, None, 16]
        assert cache["element_type"] == "f32"
        assert cache["evidence"]
        assert (cache["index"], cache["bytes_per_token"], cache["fixed_bytes"]) == (cache["layer"], 128, None)
    assert found["totals"] == {
        "bytes_per_token": 512,
        "bytes_per_1k_tokens": 512000,
        "fixed_bytes": 0,
        "bytes_per_encoder_token": 0,
    }
    for view in found["views"]:
        assert list(view) == ["consumer", "verdict", "reasons", "caches"]
    assert found["warnings"] == found["unpaired_inputs"] == found["unpaired_outputs"] == []
    assert len(found["attention"]) == 2
    for block in found["attention"]:
        assert list(block) == ATTENTION_KEYS
    for port in [*found["inputs"], *found["outputs"]]:
        assert list(port) == ["name", "shape", "element_type"]
        assert all(size is None or isinstance(size, int) for size in port["shape"])


def test_json_names_caches_as_documented(capfd):
    stateless = inspected(capfd, "llama", "onnx")["caches"][0]
    assert stateless["name"] == stateless["read"] == "past_key_values.0.key"
    assert stateless["write"] == "present.0.key"
    assert inspected(capfd, "llama", "ov-stateful")["caches"][0]["name"] == "past_key_values.0.keypresent.0.key"


def test_text_folds_equal_layers(capfd):
    done = in_process(capfd, "inspect", export("llama_12l", "onnx"))
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].endswith("model.onnx: ONNX, stateless, kind kv")
    assert [line.split()[:5] for line in lines if "layers" in line] == [
        ["layers", "0-11", "key,", "value", "kv"],
        ["layers", "0-11", "4", "heads", "over"],
    ]
    assert "  total for a batch of 1: 1.54 KB per token, 1.54 MB per 1k tokens" in lines
    scale = "scale 0.353553 (0.594604 * 0.594604)"
    assert f"  layers 0-11  4 heads over 2, {scale}, mask causal+input  decomposed, fusable" in lines
    assert len(lines) < 25


@pytest.mark.parametrize(
    ("model", "lines"),
    [
        ("lfm2", ["layers 0, 2 conv linear", "layers 1, 3 key, value kv"]),
        ("qwen3_next", ["layers 0-2 conv linear", "layers 0-2 recurrent linear", "layer 3 key, value kv"]),
        ("deepseek_v3", ["layers 0-1 key kv", "layers 0-1 value kv"]),
    ],
)
def test_text_folds_hybrids_by_kind_of_layer(capfd, model, lines):
    done = in_process(capfd, "inspect", export(model, "ov-stateful"))
    caches, _ = done.out.split("\nattention (")
    folded = [" ".join(line.split()) for line in caches.splitlines() if line.startswith("  layer")]
    assert len(folded) == len(lines)
    for line, start in zip(folded, lines, strict=True):
        assert line.startswith(start)


@pytest.mark.parametrize(
    ("model", "variant", "lines"),
    [
        (
            "gemma3_text",
            "ov-stateful",
            [
                "layers 0-2 4 heads over 2, scale 0.25, mask causal+input, window 8 in the mask",
                "layer 3 4 heads over 2, scale 0.25, mask causal+input",
            ],
        ),
        (
            "gpt_oss",
            "onnx",
            [
                "layer 0 4 heads over 2, scale 0.25, mask causal+input, sinks, window 8 in the mask",
                "layer 1 4 heads over 2, scale 0.25, mask causal+input, sinks",
            ],
        ),
        ("llama", "onnx-genai", ["layers 0-1 4 heads over 2, scale 0.25, mask causal+lengths"]),
    ],
)
def test_attributes_of_attention_are_printed(capfd, model, variant, lines):
    form = {"onnx": "decomposed, fusable", "onnx-genai": "fused GroupQueryAttention"}
    out = in_process(capfd, "inspect", export(model, variant)).out
    told = out.split("\nattention (")[1].split("\n\n")[0].splitlines()[1:]
    expected = [f"{line} {form.get(variant, 'fused ScaledDotProductAttention')}" for line in lines]
    expected += ["fuse-group-query-attention fuses 2"] if variant == "onnx" else []
    assert [" ".join(line.split()) for line in told] == expected


def test_all_prints_attention_and_its_window(capfd):
    out = in_process(capfd, "inspect", "--all", export("gemma3_text", "ov-stateful")).out
    assert out.count("    a window of 8 in the mask only; the cache keeps all positions\n") == 6
    assert out.count("    head_dim 16, value head_dim 16\n    reads past_key_values.") == 4


def test_fixed_sizes_and_sizes_per_token_are_printed(capfd):
    out = in_process(capfd, "inspect", export("qwen3_next", "ov-stateful")).out
    assert "6.14 KB fixed" in out
    assert "total for a batch of 1: 256 B per token, 256 KB per 1k tokens; 18.4 KB fixed" in out
    crossed = in_process(capfd, "inspect", export("t5", "onnx") / "decoder_with_past_model.onnx").out
    assert "512 B per token of the encoder" in crossed


def test_views_of_runtimes_are_printed_with_warnings(capfd):
    out = in_process(capfd, "inspect", export("lfm2", "ov-stateful")).out
    assert "views of other programs\n  agrees          openvino.genai, optimum-intel\n  misreads        NPUW\n" in out
    assert out.endswith(
        "warnings (1)\n  NPUW will compute incorrect results with cache_params.past.conv.0cache_params.present.conv.0 "
        "and cache_params.past.conv.1cache_params.present.conv.1 because attention_mask is not applied to the "
        "state's inputs, so the state absorbs the padding before a prompt\n"
    )


def test_text_warns_of_halves_of_caches(capfd):
    out = in_process(capfd, "inspect", export("t5", "onnx") / "decoder_model.onnx").out
    assert "  output present.0.decoder.key looks like a present but has no past\n" in out


def test_text_of_a_model_without_caches(capfd):
    done = in_process(capfd, "inspect", export("llama", "onnx-nocache"))
    assert done.code == 0
    assert "kind none" in done.out
    assert "caches (0)" in done.out


def test_all_prints_the_evidence(capfd):
    short = in_process(capfd, "inspect", export("llama", "onnx")).out
    long = in_process(capfd, "inspect", export("llama", "onnx"), "--all").out
    assert "past_key_values.1.value -> present.1.value" in long
    assert "appended along axis 2 by Concat /model/layers.1/self_attn/Concat_6" in long
    assert "  openvino.genai: cannot tell\n    reads OpenVINO IR" in long
    assert "past_key_values.1.value" not in short
    assert len(long.splitlines()) > len(short.splitlines()) + 8


@pytest.mark.parametrize("path", quick_files(model_files()))
def test_json_follows_the_schema(path):
    model = exported(path)
    printed = json.loads(json.dumps(graphpass.inspect(model).to_json()))
    assert_valid_report(printed, "inspect")


@pytest.mark.parametrize("change", [{"kind": "kvv"}, {"caches": [{}]}, {"extra": 1}, {"warnings": [""]}])
def test_the_schema_refuses_wrong_values(capfd, change):
    found = inspected(capfd, "llama", "onnx")
    assert schema_validator("inspect").is_valid(found)
    assert not schema_validator("inspect").is_valid(found | change)


def test_a_folder_with_several_models_is_refused_without_a_terminal(capfd, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    done = in_process(capfd, "inspect", export("t5", "onnx"))
    assert done.code == 2
    assert done.err.startswith("error: GP201: ")
    assert "decoder_with_past_model.onnx" in done.err


@pytest.mark.skipif(sys.platform != "linux", reason="pseudo terminals end in their own ways elsewhere")
def test_a_folder_with_several_models_asks_at_a_terminal():
    import pty

    leader, follower = pty.openpty()
    os.write(leader, b"encoder_model.onnx\n")
    command = [sys.executable, "-m", "graphpass.cli", "inspect", export("t5", "onnx")]
    done = subprocess.run(command, stdin=follower, capture_output=True, text=True, check=False, timeout=60)
    os.close(leader)
    os.close(follower)
    assert done.returncode == 0, done.stderr
    assert "Select one" in done.stderr
    assert "encoder_model.onnx: ONNX, encoder, not pooled" in done.stdout


def test_html_is_written_beside_the_text(capfd, tmp_path):
    page = tmp_path / "report.html"
    done = in_process(capfd, "inspect", export("lfm2", "ov-stateful"), "--html", page)
    assert done.code == 0
    assert "hybrid" in done.out
    assert page.read_text().startswith("<!doctype html>")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_unwritable_html(capfd, tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = in_process(capfd, "inspect", export("llama", "onnx"), "--html", tmp_path / "file" / "report.html")
    assert done.code == 6
    assert "GP501" in done.err


def test_options_for_plugins_are_printed(capfd):
    options = {"ACTIVATIONS_SCALE_FACTOR": "8.0", "KV_CACHE_PRECISION": "f16"}
    text = in_process(capfd, "inspect", export("llama", "ov-stateful")).out
    assert "\nruntime options (2)\n  ACTIVATIONS_SCALE_FACTOR  8.0\n  KV_CACHE_PRECISION        f16\n" in text
    assert (
        json.loads(in_process(capfd, "inspect", export("llama", "ov-stateful"), "--format", "json").out)[
            "runtime_options"
        ]
        == options
    )
    assert "runtime options" not in in_process(capfd, "inspect", export("llama", "onnx")).out


def test_all_prints_masks_as_expressions(capfd):
    done = in_process(capfd, "inspect", export("mistral_sw8", "onnx"), "--all")
    assert "attends to k if (" in done.out
    assert "past + q <= 7 + k" in done.out
    assert done.out.count("    reads position position_ids[b, q]\n") == 2
