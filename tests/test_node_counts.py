"""How many nodes run at each step, beside optimum's own stateful export of the same model."""

from __future__ import annotations

import functools
from collections import Counter

import openvino
import pytest
from support.decode import EXACT, compiled, executed
from support.models import export

import graphpass

PAIRS = [
    *((name, "onnx") for name in ("llama", "gpt2", "qwen3", "gemma3_text", "qwen3_moe", "deepseek_v3", "llama_12l")),
    *((name, "ov-stateless") for name in ("llama", "gpt2", "qwen3", "gemma3_text", "qwen3_moe", "deepseek_v3")),
    *((name, "ov-stateless") for name in ("granitemoehybrid", "lfm2", "llama_12l", "mamba", "qwen3_next")),
]

#: What differs in the model itself, so that no rewrite of shapes or attention removes it: nodes more, by class.
OWN = {
    # Rows of positions may be shared by the batch, so that hidden states and tokens may differ in batch as far as the
    # graph tells. Each is asked for its batch, where optimum splits one shape.
    ("gpt2", "onnx"): {"Gather": 2},
    ("llama", "onnx"): {"Gather": 1},
    ("qwen3", "onnx"): {"Gather": 1},
    ("llama_12l", "onnx"): {"Gather": 1},
    # The last layer sees everything, the others a window: one mask more than in optimum's export, where both begin with
    # the same conditions.
    ("gemma3_text", "onnx"): {"Gather": 1, "Eltwise": 1},
    # Each expert gathers its tokens, and scatters what it makes of them; NonZero gives [axes, found], which PyTorch has
    # transposed. Optimum's export has each expert split the places.
    ("deepseek_v3", "onnx"): {"Gather": 1, "Eltwise": 3, "Transpose": 4},
}

#: Experts as ONNX exports have them: each gathers, multiplies and scatters its own tokens. Optimum's export of the same
#: model has all of them in one product (GatherMatmul), which is another computation than the exported one.
SEPARATE_EXPERTS = {("qwen3_moe", "onnx")}


@functools.cache
def converted(name: str, variant: str) -> Counter[str]:
    source = graphpass.load(export(name, variant))
    return executed(
        compiled(graphpass.PassManager(graphpass.get_target("cpu").pipeline(source)).run(source).model.ov_model)
    )


@functools.cache
def optimum(name: str) -> Counter[str]:
    return executed(openvino.Core().compile_model(export(name, "ov-stateful") / "openvino_model.xml", "CPU", EXACT))


@pytest.mark.parametrize(("name", "variant"), PAIRS)
def test_no_more_nodes_than_in_optimums_export(name, variant):
    if (name, variant) in SEPARATE_EXPERTS:
        pytest.skip("experts are exported one by one")
    assert converted(name, variant).total() <= 1.05 * optimum(name).total()


@pytest.mark.parametrize(("name", "variant"), PAIRS)
@pytest.mark.parametrize("kind", ["Eltwise", "Gather", "Transpose"])
def test_no_more_of_one_class(name, variant, kind):
    if (name, variant) in SEPARATE_EXPERTS:
        pytest.skip("experts are exported one by one")
    assert converted(name, variant)[kind] <= optimum(name)[kind] + OWN.get((name, variant), {}).get(kind, 0)


@pytest.mark.parametrize(("name", "variant"), PAIRS)
@pytest.mark.parametrize("kind", ["ScaledDotProductAttention", "RoPE", "RMS", "GatedDeltaNet", "MVN"])
def test_as_much_is_fused(name, variant, kind):
    assert converted(name, variant)[kind] == optimum(name)[kind]
