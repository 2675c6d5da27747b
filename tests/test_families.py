"""The main job on models that each write attention in a way of their own; `fixtures/make_models.py` made them."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import numpy
import openvino
import openvino_genai
import pytest
from support.decode import EXACT, compiled, fused_attention
from support.loaded import converted, exported
from support.models import export, reference
from support.reference_tokens import GeneratesAsPyTorch

import graphpass
from graphpass.verify import compare

#: Attention kernels that the CPU plugin makes of the result: one a layer, where the operator can express the attention.
FUSED = {
    ("bloom", "onnx"): 2,  # ALiBi; heads merged into the batch, baddbmm
    ("opt", "onnx"): 2,  # learned positions with an offset
    ("falcon", "onnx"): 2,  # one key and value head for all
    ("falcon_alibi", "onnx"): 2,  # ALiBi; Reshapes that do nothing around Softmax
    ("gptj", "onnx"): 2,  # rotates a part of each head; Converts that do nothing
    ("gpt_oss", "onnx"): 2,  # attention sinks, sliding window in every other layer, experts
    ("gemma2", "onnx"): 0,  # soft cap on the scores; sliding window in every other layer
    ("mistral_sw8", "onnx"): 2,  # sliding window in every layer
    ("gpt_neo", "onnx"): 2,  # local attention in every other layer, no scale
    ("phi3", "onnx"): 2,  # query, key and value from one product
    ("gpt2_upcast", "onnx"): 2,  # heads merged into the batch, scale by layer, product added to zeros
    ("xglm", "ov-stateful"): 2,  # decomposed although it is a stateful IR
    ("olmo2", "ov-stateless"): 2,  # boolean masks, norms on whole query and key
}

#: What keeps paged attention from generating the same tokens, and whether it refuses (RuntimeError) or computes others.
NOT_PAGED = {
    "gemma2": (
        RuntimeError,
        "no operator has a soft cap, and the runtime refuses a model whose attention is decomposed",
    )
}


def paged(model: str, variant: str) -> object:
    """The case, expected to fail where it is known to."""
    if model not in NOT_PAGED:
        return pytest.param(model, variant)
    raises, reason = NOT_PAGED[model]
    return pytest.param(model, variant, marks=pytest.mark.xfail(raises=raises, reason=reason, strict=True))


def for_cpu(model: str, variant: str) -> graphpass.PipelineResult:
    return converted(exported(f"{model}/{variant}"))


@functools.cache
def on_the_cpu_plugin(model: str, variant: str) -> openvino.CompiledModel:
    result = for_cpu(model, variant).model.ov_model.clone()
    # The plugin drops a Convert that does nothing and gives its name to the input, which `greedy` then does not know.
    for port in result.inputs:
        for reader in port.get_target_inputs():
            if reader.get_node().get_type_name() == "Convert":
                reader.get_node().output(0).set_names(set())
    return compiled(result)


@pytest.mark.parametrize(("model", "variant"), FUSED)
class TestOnTheCpuPlugin(GeneratesAsPyTorch):
    compile = staticmethod(on_the_cpu_plugin)

    def test_fuses_attention_of_every_layer(self, model, variant):
        assert fused_attention(on_the_cpu_plugin(model, variant)) == FUSED[model, variant]

    def test_passes_verification(self, model, variant):
        comparison = compare(exported(f"{model}/{variant}"), for_cpu(model, variant).model)
        assert comparison.passed, comparison.summary()


def test_unfused_attention_is_reported():
    records = for_cpu("gemma2", "onnx").records
    notes = [note for record in records for note in getattr(record.result, "notes", ())]
    assert sum("soft-capped" in note for note in notes) == 4


@pytest.fixture(scope="module")
def genai_folder(tmp_path_factory):
    """Builds a folder as a user has it; the tokenizers are those of llama, which has as large a vocabulary."""

    @functools.cache
    def build(model: str, variant: str) -> Path:
        folder = tmp_path_factory.mktemp(f"{model}-{variant}")
        graphpass.save(for_cpu(model, variant).model, folder / "openvino_model.xml")
        for file in [*export(model, variant).glob("*.json"), *export("llama", "ov-stateful").glob("openvino_*token*")]:
            shutil.copy(file, folder)
        return folder

    return build


def generated(folder: Path, model: str, backend: str) -> list[int]:
    pipeline = openvino_genai.LLMPipeline(folder, "CPU", ATTENTION_BACKEND=backend, **EXACT)
    prompt = openvino.Tensor(numpy.array([reference(model)["prompt_ids"]], dtype=numpy.int64))
    config = openvino_genai.GenerationConfig(max_new_tokens=12, ignore_eos=True)
    return list(pipeline.generate(prompt, config).tokens[0])


@pytest.mark.parametrize(("model", "variant"), FUSED)
def test_openvino_genai_generates_the_reference_tokens(genai_folder, model, variant):
    assert generated(genai_folder(model, variant), model, "SDPA") == reference(model)["greedy_ids"]


@pytest.mark.parametrize(("model", "variant"), [paged(*case) for case in FUSED])
def test_paged_attention_generates_the_reference_tokens(genai_folder, model, variant):
    assert generated(genai_folder(model, variant), model, "PA") == reference(model)["greedy_ids"]
