"""Exports of newer exporters become models that runtimes fuse, and generate PyTorch's tokens."""

import json

import numpy
import onnxruntime_genai
import pytest
from support.commands import in_process
from support.models import exporters
from support.reference_tokens import greedy_tokens

from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.io import load
from graphpass.runtime import open_session


@pytest.mark.parametrize(
    ("exporter", "family", "target"),
    [
        ("transformers-onnx", "llama", "cpu"),
        ("transformers-onnx", "llama", "ort"),
        ("transformers-onnx", "llama", "paged"),
        ("transformers-onnx", "olmo3", "ort-genai"),
        ("transformers-onnx", "olmo3", "npu"),
        ("transformers-onnx", "olmo3", "paged"),
        ("transformers-ov", "llama", "cpu"),
        ("transformers-ov", "gpt_oss", "cpu"),
        ("transformers-ov", "gpt_oss", "npu"),
        ("transformers-ov", "kimi_linear", "cpu"),
        ("transformers-ov", "llama4_text", "cpu"),
        ("transformers-ov", "olmo3", "cpu"),
        ("transformers-ov", "olmo3", "npu"),
        ("transformers-ov", "olmo3", "paged"),
        ("builder-webgpu", "qwen3", "cpu"),
        ("builder-webgpu", "qwen3", "ort"),
        ("builder-paged", "qwen3", "cpu"),
        ("mobius", "llama", "cpu"),
        ("mobius", "llama", "paged"),
        ("mobius", "llama", "ort-genai"),
        ("mobius", "qwen3_5_text", "cpu"),
        ("mobius-static", "llama", "cpu"),
        ("mobius-static", "llama", "ort-genai"),
    ],
)
def test_exports_are_converted_and_fused(exporter, family, target, tmp_path, capfd):
    source = exporters(exporter, family)
    verify = [] if target == "ort-genai" else ["--no-verify"]
    assert in_process(capfd, "convert", source, "-o", tmp_path / "out", "--target", target, *verify).code == 0
    if target in {"npu", "paged"}:  # convert compares what the runtime computes
        return
    expected = json.loads((source / "reference.json").read_text())
    session = open_session(load(tmp_path / "out"))
    found = greedy_tokens(session, session.prefill([expected["prompt_ids"]]), len(expected["greedy_ids"]))
    assert found == expected["greedy_ids"]


def test_gates_by_sinks_are_fused_and_proven(tmp_path, capfd):
    arguments = [exporters("transformers-ov", "granite_swa"), "-o", tmp_path / "out", "--target", "cpu"]
    done = in_process(capfd, "convert", *arguments, "--require", "proven")
    assert (done.code, "2 attention fused" in done.out) == (0, True), done.err


def test_chunks_are_refused_by_paged_attention(tmp_path, capfd):
    source = exporters("transformers-ov", "llama4_text")
    done = in_process(capfd, "convert", source, "-o", tmp_path / "out", "--target", "paged")
    assert done.code == 4
    assert "chunks of 8" in done.err


@pytest.mark.parametrize(("exporter", "family"), [("builder-webgpu", "qwen3"), ("mobius", "llama")])
def test_exports_for_webgpu_are_verified(exporter, family, tmp_path, capfd):
    """No kernel of the CPU has norms inside attention; the builder declares types of weights, which become f16."""
    arguments = [exporters(exporter, family), "-o", tmp_path / "out", "--target", "ort{device=webgpu}"]
    done = in_process(capfd, "convert", *arguments)
    assert (done.code, "verified  same" in done.out) == (0, True), done.err


def test_windows_alone_run_on_onnxruntime_genai(tmp_path, capfd):
    source = exporters("builder", "lfm2_moe")
    in_process(capfd, "convert", source, "-o", tmp_path / "out", "--target", "ort-genai", "--no-verify")
    expected = json.loads((source / "reference.json").read_text())
    options = onnxruntime_genai.GeneratorParams(runtime := onnxruntime_genai.Model(str(tmp_path / "out")))
    options.set_search_options(max_length=40)
    generator = onnxruntime_genai.Generator(runtime, options)
    generator.append_tokens(expected["prompt_ids"])
    for _ in expected["greedy_ids"]:
        generator.generate_next_token()
    assert list(generator.get_sequence(0))[len(expected["prompt_ids"]) :] == expected["greedy_ids"]


@pytest.mark.parametrize("pipeline", ["lower-operators", "lower-operators,to-openvino"])
def test_norms_inside_attention_are_lowered(pipeline):
    """No kernel of ONNX Runtime's CPU provider runs the operator with them (1.32)."""
    source = exporters("builder-webgpu", "qwen3")
    expected = json.loads((source / "reference.json").read_text())
    session = open_session(PassManager(parse(pipeline)).run(load(source)).model)
    prefill = session.prefill([expected["prompt_ids"]])
    numpy.testing.assert_allclose(prefill[0, -1, :8], expected["logits_last_prompt_pos_first8"], atol=1e-4)
    assert greedy_tokens(session, prefill, len(expected["greedy_ids"])) == expected["greedy_ids"]
