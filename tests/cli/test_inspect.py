import io
import json
import os
import subprocess
import sys

import pytest
from support.commands import in_process
from support.models import export

CACHE_KEYS = ["name", "kind", "role", "layer", "axes", "shape", "element_type", "read", "write", "evidence"]


def inspected(capfd, model, variant):
    done = in_process(capfd, "inspect", export(model, variant), "--format", "json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


@pytest.mark.parametrize("variant", ["onnx", "ov-stateless", "ov-stateful"])
def test_json_is_one_object_with_the_documented_keys(capfd, variant):
    found = inspected(capfd, "llama", variant)
    assert list(found) == ["format", "kind", "stateful", "caches", "attention", "inputs", "outputs"]
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
    assert len(found["attention"]) == 2
    for block in found["attention"]:
        assert list(block) == ["node", "form", "key", "value", "fusable", "reason"]
    for port in [*found["inputs"], *found["outputs"]]:
        assert list(port) == ["name", "shape", "element_type"]
        assert all(size is None or isinstance(size, int) for size in port["shape"])


def test_json_names_caches_as_documented(capfd):
    stateless = inspected(capfd, "llama", "onnx")["caches"][0]
    assert stateless["name"] == stateless["read"] == "past_key_values.0.key"
    assert stateless["write"] == "present.0.key"
    assert inspected(capfd, "llama", "ov-stateful")["caches"][0]["name"] == "past_key_values.0.keypresent.0.key"


def test_text_folds_layers_that_are_alike(capfd):
    done = in_process(capfd, "inspect", export("llama_12l", "onnx"))
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].endswith("model.onnx: ONNX, stateless, kind kv")
    assert [line.split()[:4] for line in lines if "layers" in line] == [
        ["layers", "0-11", "key", "kv"],
        ["layers", "0-11", "value", "kv"],
    ]
    assert "  12 decomposed, fusable" in lines
    assert len(lines) < 25


def test_text_of_a_model_without_caches(capfd):
    done = in_process(capfd, "inspect", export("llama", "onnx-nocache"))
    assert done.code == 0
    assert "kind none" in done.out
    assert "caches (0)" in done.out


def test_verbose_text_tells_the_evidence(capfd):
    short = in_process(capfd, "inspect", export("llama", "onnx")).out
    long = in_process(capfd, "inspect", export("llama", "onnx"), "-v").out
    assert "past_key_values.1.value -> present.1.value" in long
    assert "past_key_values.1.value" not in short
    assert len(long.splitlines()) > len(short.splitlines()) + 8


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
    assert "Which one" in done.stderr
    assert "encoder_model.onnx: ONNX, stateless, kind none" in done.stdout
