"""The main job on real models: convert for the CPU, then generate with OpenVINO and with openvino.genai."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import numpy
import openvino
import openvino_genai
import pytest
from support.decode import EXACT, compiled, fused_attention, greedy
from support.loaded import converted, exported
from support.models import export, reference
from support.quick_cases import quick_product
from support.reference_tokens import GeneratesAsPyTorch

import graphpass

FROM_ONNX = ["llama", "gpt2", "qwen3", "gemma3_text", "qwen3_moe", "deepseek_v3", "llama_12l"]
FROM_IR = ["llama", "gpt2", "qwen3"]
FROM_GENAI = ["llama", "qwen3", "llama_12l"]
CASES = [
    *((model, "onnx") for model in FROM_ONNX),
    *((model, "ov-stateless") for model in FROM_IR),
    *((model, "onnx-genai") for model in FROM_GENAI),
]


def for_cpu(model: str, variant: str) -> graphpass.Model:
    return converted(exported(f"{model}/{variant}")).model


def on_the_cpu_plugin(model: str, variant: str) -> openvino.CompiledModel:
    return compiled(for_cpu(model, variant).ov_model)


@pytest.mark.parametrize(("model", "variant"), CASES)
class TestOnTheCpuPlugin(GeneratesAsPyTorch):
    compile = staticmethod(on_the_cpu_plugin)

    def test_generates_the_same_after_a_reset(self, model, variant):
        expected = reference(model)
        request = on_the_cpu_plugin(model, variant).create_infer_request()
        greedy(request, [[7, 3, 11]], 4)
        assert greedy(request, [expected["prompt_ids"]], 12) == [expected["greedy_ids"]]

    def test_fuses_as_many_attention_layers_as_optimum(self, model, variant):
        theirs = compiled(exported(f"{model}/ov-stateful").ov_model)
        assert fused_attention(on_the_cpu_plugin(model, variant)) == fused_attention(theirs) > 0


@pytest.fixture(scope="module")
def genai_folder(tmp_path_factory):
    """Builds a folder as a user has it: the converted model, and the tokenizers that lay beside optimum's export."""

    @functools.cache
    def build(model: str, variant: str) -> Path:
        folder = tmp_path_factory.mktemp(f"{model}-{variant}")
        graphpass.save(for_cpu(model, variant), folder / "openvino_model.xml")
        for file in export(model, "ov-stateful").iterdir():
            if not file.name.startswith("openvino_model"):
                shutil.copy(file, folder)
        return folder

    return build


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("case", "backend"), quick_product(CASES, ["SDPA", "PA"]))
def test_openvino_genai_generates_the_reference_tokens(genai_folder, case, backend):
    model, variant = case
    expected = reference(model)
    pipeline = openvino_genai.LLMPipeline(genai_folder(model, variant), "CPU", ATTENTION_BACKEND=backend, **EXACT)
    prompt = openvino.Tensor(numpy.array([expected["prompt_ids"]], dtype=numpy.int64))
    config = openvino_genai.GenerationConfig(max_new_tokens=12, ignore_eos=True)
    assert list(pipeline.generate(prompt, config).tokens[0]) == expected["greedy_ids"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("variant", "backend"), quick_product(["ov-stateless", "ov-stateful"], ["SDPA", "PA"]))
def test_openvino_genai_generates_the_reference_tokens_of_a_padding_masking_hybrid(genai_folder, variant, backend):
    """Optimum's own export of it gives other tokens on the paged backend, which does not find its positions."""
    expected = reference("granitemoehybrid")
    folder = genai_folder("granitemoehybrid", variant)
    pipeline = openvino_genai.LLMPipeline(folder, "CPU", ATTENTION_BACKEND=backend, **EXACT)
    prompt = openvino.Tensor(numpy.array([expected["prompt_ids"]], dtype=numpy.int64))
    config = openvino_genai.GenerationConfig(max_new_tokens=12, ignore_eos=True)
    assert list(pipeline.generate(prompt, config).tokens[0]) == expected["greedy_ids"]


@pytest.mark.parametrize("backend", ["SDPA", "PA"])
def test_openvino_genai_generates_the_reference_tokens_of_a_hybrid(genai_folder, backend):
    """Its paged backend wants convolutions' windows as wide as the kernel, and the builder keeps a column less."""
    expected = reference("lfm2")
    folder = genai_folder("lfm2", "onnx-genai")
    pipeline = openvino_genai.LLMPipeline(folder, "CPU", ATTENTION_BACKEND=backend, **EXACT)
    prompt = openvino.Tensor(numpy.array([expected["prompt_ids"]], dtype=numpy.int64))
    config = openvino_genai.GenerationConfig(max_new_tokens=12, ignore_eos=True)
    assert list(pipeline.generate(prompt, config).tokens[0]) == expected["greedy_ids"]
