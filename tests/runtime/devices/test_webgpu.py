"""WebGPU adapters: the environment of a software adapter, and what runs on it."""

import pytest

from graphpass.runtime.devices import Adapter, Runtime, webgpu
from graphpass.testing import assert_same, run, tiny_model

DRIVER = {"VK_ICD_FILENAMES": "/driver.json"}


def test_a_process_in_the_environment_of_a_software_adapter(monkeypatch):
    monkeypatch.setattr(webgpu, "software_vulkan", lambda: DRIVER)
    monkeypatch.delenv("VK_ICD_FILENAMES", raising=False)
    assert not webgpu.is_software()
    monkeypatch.setenv("VK_ICD_FILENAMES", "/driver.json")
    assert webgpu.is_software()
    monkeypatch.setattr(webgpu, "software_vulkan", lambda: None)
    assert not webgpu.is_software()


@pytest.mark.parametrize(
    ("runtime", "variables"),
    [
        (Runtime("WebGPU", None, missing="it is not installed"), "WebGPU: it is not installed"),
        (Runtime("WebGPU", "1", (Adapter("SwiftShader", is_software=True),)), DRIVER),
        (Runtime("WebGPU", "1", (Adapter("GPU", is_software=False),)), {}),
    ],
)
def test_software_adapters_require_variables(monkeypatch, runtime, variables):
    monkeypatch.setattr(webgpu, "find_webgpu", lambda: runtime)
    monkeypatch.setattr(webgpu, "software_vulkan", lambda: DRIVER)
    assert webgpu.environment.__wrapped__() == variables


def test_models_in_f16_run_in_f32_on_a_software_adapter():
    model = tiny_model("llama", layers=1)
    half = run(model, "change-precision{to=f16}")
    assert webgpu.for_adapter(model, is_software=True) == (model, "")
    assert webgpu.for_adapter(half, is_software=False) == (half, "")
    twin, words = webgpu.for_adapter(half, is_software=True)
    assert words == " in f32, since SwiftShader has no f16"
    assert {node.outputs[0].element_type for node in twin.graph.of_op("MatMul")} == {"f32"}
    assert_same(half, twin, steps=1)
