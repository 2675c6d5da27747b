"""ONNX Runtime's WebGPU provider: trials, predictions, and what is missing without it."""

from __future__ import annotations

import pytest
from support.commands import in_process
from support.loaded import converted, exported, run_once
from support.models import dynamo, export, exporters, hybrids

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.pipeline import parse_target
from graphpass.io import load
from graphpass.runtime.devices import webgpu
from graphpass.targets import check_model
from graphpass.targets.ort import webgpu_trial

#: The f32 form: SwiftShader has no f16.
F32 = "ort{device=webgpu,precision=f32}"


@pytest.fixture
def adapter():
    """Skip the test without the provider or an adapter."""
    if isinstance(found := webgpu.environment(), str):
        pytest.skip(found)


@pytest.fixture
def no_adapter(monkeypatch):
    monkeypatch.setattr(webgpu_trial, "environment", lambda: "no adapter: install one")


def test_attention_without_a_kernel_is_predicted():
    model = load(dynamo("gemma3_text") / "onnx-23")
    found = parse_target(F32).predict(model, analyze_caches(model))
    attention = [finding for finding in found if finding.subject == "attention"]
    assert [finding.verdict for finding in attention] == ["not fused", "not fused"]
    reason = "WebGpuExecutionProvider has no kernel of Attention, so that the CPU computes it: run fuse-group-query-att"
    assert attention[0].reason.startswith(reason)
    assert check_model(run_once(model, *parse_target(F32).pipeline(model)).model, F32, confirm=False).holds


def test_without_an_adapter_there_is_no_trial(no_adapter):
    report = check_model(converted(exported("llama/onnx"), F32).model, F32)
    assert (report.holds, report.confirmation.tried) == (True, "no adapter: install one")


def test_verify_names_the_missing_adapter(monkeypatch, capfd):
    monkeypatch.setattr("graphpass.verify.on_device.environment", lambda: "no adapter: install one")
    llama = export("llama", "onnx")
    done = in_process(capfd, "verify", llama, llama, "--device", "webgpu")
    assert done.code != 0
    assert done.err == "error: GP321: cannot compare on WEBGPU: no adapter: install one\n"


def test_prompts_too_long_for_swiftshader_are_refused(monkeypatch, capfd):
    monkeypatch.setattr("graphpass.verify.on_device.environment", lambda: {"VK_ICD_FILENAMES": "swiftshader"})
    llama, prompt = export("llama", "onnx"), ",".join(["5"] * 32)
    done = in_process(capfd, "verify", llama, llama, "--device", "webgpu", "--prompt-ids", prompt)
    assert done.code != 0
    assert done.err.startswith(
        "error: GP321: cannot compare on WEBGPU: SwiftShader computes prompts of more than 31 tok"
    )


def test_a_crash_of_the_process_is_reported(monkeypatch, capfd, tmp_path):
    monkeypatch.setattr(webgpu_trial, "environment", dict)
    monkeypatch.setattr(webgpu_trial.sys, "executable", "/bin/false")
    done = in_process(capfd, "convert", export("llama", "onnx"), "-o", tmp_path / "out", "--target", F32)
    assert "no refusal was predicted, but: its process ended with 1" in done.err
    assert not (tmp_path / "out").exists()


def source_of(name):
    if name == "qwen3_next":
        return load(hybrids() / "qwen3_next_dense" / "onnx-raw")
    if name.startswith("onnx-"):
        return load(dynamo("gemma3_text" if name == "onnx-23" else "deepseek_v3") / name)
    return load(exporters(*name.split("/"))) if "/" in name else exported(f"{name}/onnx")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("llama", "mistral_sw8", "gpt_oss", "qwen3_moe", "gemma2", "qwen3_next", "onnx-23", "onnx-18", "mobius/llama"),
        # Attention and experts without a kernel there are lowered.
        *("mobius/qwen3_5_text", "builder/lfm2_moe"),
    ],
)
def test_predictions_are_confirmed(name, adapter):
    model = source_of(name)
    report = check_model(run_once(model, *parse_target(F32).pipeline(model)).model, F32)
    assert report.confirmation.outcome == "confirmed", report.confirmation
    assert "generated on ONNX Runtime's WebGPU provider, logits within" in report.confirmation.tried


@pytest.mark.slow
def test_attention_on_the_cpu_provider_confirms_the_prediction(adapter):
    report = check_model(load(dynamo("gemma3_text") / "onnx-23"), F32)
    assert report.confirmation.outcome == "confirmed", report.confirmation
    assert "2 Attention" in report.confirmation.tried


@pytest.mark.slow
def test_f16_is_tried_as_its_twin(adapter):
    if not webgpu.environment():
        pytest.skip("the adapter is not software")
    report = check_model(converted(exported("llama/onnx"), "ort{device=webgpu}").model, "ort{device=webgpu}")
    assert report.confirmation.outcome == "confirmed", report.confirmation
    assert "in f32, since SwiftShader has no f16" in report.confirmation.tried


@pytest.mark.slow
def test_verify_runs_f16_as_its_twin(adapter, tmp_path, capfd):
    if not webgpu.environment():
        pytest.skip("the adapter is not software")
    source = export("llama", "onnx")
    done = in_process(capfd, "convert", source, "-o", tmp_path, "--target", "ort{device=webgpu}", "--no-verify")
    assert done.code == 0, done.err
    done = in_process(capfd, "verify", source, tmp_path, "--device", "webgpu", "--steps", "3")
    assert done.code == 0, done.out + done.err
    assert "the candidate's rounding to f16: it ran in f32, since SwiftShader has no f16" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mistral_sw8", "lfm2", "gpt2"])
def test_verify_runs_the_candidate_on_webgpu(name, adapter, tmp_path, capfd):
    source = export(name, "onnx-genai" if name == "lfm2" else "onnx")
    done = in_process(capfd, "convert", source, "-o", tmp_path, "--target", F32, "--no-verify")
    assert done.code == 0, done.err
    done = in_process(capfd, "verify", source, tmp_path, "--device", "webgpu", "--steps", "3")
    assert done.code == 0, done.out + done.err
    assert "same:" in done.out
    if name == "gpt2":
        assert "equal for every input: 103 of 103 operators" in done.out
