"""transformers.js generates PyTorch's tokens from folders of target `web`, in Node and in headless Chromium."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import in_process
from support.javascript import javascript
from support.models import dynamo, export, exporters, hybrids, reference
from support.reference_tokens import greedy_tokens

from graphpass.io import load
from graphpass.runtime import open_session
from graphpass.runtime.devices.software import software_vulkan
from graphpass.targets.web import trial
from graphpass.targets.web.trial import run_task

pytestmark = pytest.mark.slow

#: Exports by family; the first ones go to Chromium as well: windows, experts, a hybrid, latent caches.
IN_BROWSER = ("llama", "mistral_sw8", "qwen3_moe", "lfm2", "qwen3_next", "deepseek_v3", "gpt2", "gpt_oss")
IN_NODE = ("bloom", "falcon", "gemma2", "gemma3_text", "gptj", "opt", "phi3", "mobius/llama", "mobius/qwen3_5_text")


def source_of(name: str) -> tuple[Path, dict]:
    """Return the folder of an export, and what PyTorch generates."""
    if name == "qwen3_next":
        folder = hybrids() / "qwen3_next_dense" / "onnx-raw"
    elif name == "deepseek_v3":
        folder = dynamo(name) / "onnx-18"
    elif "/" in name:
        folder = exporters(*name.split("/"))
        return folder, json.loads((folder / "reference.json").read_text())
    else:
        return export(name, "onnx-genai" if name == "lfm2" else "onnx"), reference(name)
    return folder, json.loads((folder.parent / "reference.json").read_text())


def folder_of(source: Path, target: str, tmp_path: Path, capfd) -> Path:
    done = in_process(capfd, "convert", source, "-o", tmp_path / "out", "--target", target, "--no-verify")
    assert done.code == 0, done.err
    return tmp_path / "out"


def generated(found, folder: Path, device: str, told: dict, *, in_browser: bool) -> list[int]:
    prompt, wanted = told["prompt_ids"], told["greedy_ids"]
    answer = run_task(found, folder, device, ([prompt],), len(wanted), in_browser=in_browser)
    assert not isinstance(answer, str), answer
    return answer[0].tokens[0]


@pytest.mark.parametrize("name", [*IN_BROWSER, *IN_NODE])
def test_node_generates_the_reference_tokens(name, tmp_path, capfd, monkeypatch):
    found = javascript(monkeypatch)
    source, told = source_of(name)
    folder = folder_of(source, "web", tmp_path, capfd)
    assert generated(found, folder, "cpu", told, in_browser=False) == told["greedy_ids"]


def test_without_an_adapter_the_cpu_of_node_is_the_trial(capfd, tmp_path, monkeypatch):
    javascript(monkeypatch)
    monkeypatch.setattr(trial, "_programs", lambda *_: (("Node", "cpu"), ("Node", "webgpu")))
    nowhere = dict.fromkeys(("VK_ICD_FILENAMES", "VK_DRIVER_FILES"), "/nonexistent")
    monkeypatch.setattr(trial, "software_vulkan", lambda: nowhere)
    done = in_process(capfd, "convert", export("llama", "onnx"), "-o", tmp_path / "out", "--target", "web")
    assert done.code == 0, done.err
    assert "and not on webgpu: Node found no adapter" in done.out


@pytest.mark.parametrize("device", ["webgpu", "wasm"])
@pytest.mark.parametrize("name", IN_BROWSER)
def test_chromium_generates_the_reference_tokens(name, device, tmp_path, capfd, monkeypatch):
    found = javascript(monkeypatch, browser=True)
    source, told = source_of(name)
    folder = folder_of(source, f"web{{device={device}}}", tmp_path, capfd)
    assert generated(found, folder, device, told, in_browser=True) == told["greedy_ids"]


@pytest.mark.parametrize(
    ("name", "dtype", "device", "in_browser"),
    [
        ("llama", "q4", "wasm", True),
        ("lfm2", "q4", "webgpu", True),
        ("llama", "q4f16", "cpu", False),
        ("lfm2", "q4f16", "wasm", True),
    ],
)
def test_weights_in_four_bits_generate_the_same(name, dtype, device, in_browser, tmp_path, capfd, monkeypatch):
    """Tokens of a session on the CPU, which verification compares with the source."""
    found = javascript(monkeypatch, browser=in_browser)
    source, told = source_of(name)
    folder = folder_of(source, f"web{{device=wasm,dtype={dtype}}}", tmp_path, capfd)
    session = open_session(load(folder / "onnx"))
    wanted = greedy_tokens(session, session.prefill(told["prompt_ids"]), len(told["greedy_ids"]))
    assert generated(found, folder, device, told, in_browser=in_browser) == wanted


@pytest.mark.parametrize("dtype", ["fp16", "q4f16"])
def test_forms_in_f16_are_tried_as_their_twin_on_swiftshader(dtype, tmp_path, capfd, monkeypatch):
    """transformers.js refuses a file of this name where the adapter has no f16."""
    javascript(monkeypatch, browser=True)
    if software_vulkan() is None:
        pytest.skip("the adapter may have f16")
    arguments = ("-o", tmp_path / "out", "--target", f"web{{dtype={dtype}}}")
    done = in_process(capfd, "convert", export("llama", "onnx"), *arguments)
    assert done.code == 0, done.err
    assert "in f32, since SwiftShader has no f16" in done.out
    assert "in Chromium on webgpu" in done.out


def test_trials_confirm_and_report_crashes(tmp_path, capfd, monkeypatch):
    found = javascript(monkeypatch)
    done = in_process(capfd, "convert", export("llama", "onnx"), "-o", tmp_path / "out", "--target", "web{device=wasm}")
    assert done.code == 0, done.err
    assert f"confirmed: transformers.js {found.version}, a prompt and 6 tokens, in Node on cpu" in done.out
    # A process that ends without an answer: nothing is written.
    node = tmp_path / "bin" / "node"
    node.parent.mkdir()
    node.write_text("#!/bin/sh\nkill -SEGV $$\n")
    node.chmod(0o755)
    monkeypatch.setenv("PATH", str(node.parent), prepend=":")
    done = in_process(capfd, "convert", export("llama", "onnx"), "-o", tmp_path / "no", "--target", "web{device=wasm}")
    assert done.code != 0
    assert "its process ended with -11" in done.err
    assert not (tmp_path / "no").exists()
