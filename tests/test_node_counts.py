"""Count nodes that run at each step, beside optimum's own stateful export of the same model."""

from __future__ import annotations

import functools
from collections import Counter

import pytest
from support.decode import compiled, executed
from support.loaded import converted, exported

PAIRS = [
    *((name, "onnx") for name in ("llama", "gpt2", "qwen3", "gemma3_text", "deepseek_v3", "llama_12l")),
    *((name, "ov-stateless") for name in ("llama", "gpt2", "qwen3", "gemma3_text", "qwen3_moe", "deepseek_v3")),
    *((name, "ov-stateless") for name in ("granitemoehybrid", "lfm2", "llama_12l", "mamba", "qwen3_next")),
]

#: Nodes of one model, whatever its layers, by which a window counts positions of the mask (window-from-positions):
#: without them sessions compact its caches at each edit.
WINDOW = {"Gather": 2, "Eltwise": 3, "Reshape": 1, "Concatenation": 2, "CumSum": 1, "ShapeOf": 1}

#: What differs in the model itself, so that no rewrite of shapes or attention removes it: nodes more, by class.
OWN = {
    # One dimension of the padding mask is read by a Gather where optimum's export has a Split.
    **{(name, "onnx"): {"Gather": 1} for name in ("llama", "qwen3", "llama_12l")},
    **{("gemma3_text", variant): WINDOW for variant in ("onnx", "ov-stateless")},
    # That, and the batch of the hidden states, to which positions are broadcast, is not known to be that of the tokens.
    ("gpt2", "onnx"): {"Gather": 2},
    # Each expert gathers its tokens and scatters what it makes of them. ONNX's NonZero gives [axes, found], which the
    # export transposes and splits for each expert where optimum's has one Split.
    ("deepseek_v3", "onnx"): {"Gather": 1, "Eltwise": 2, "Transpose": 4},
    # Experts become one product, whose weights are turned from by token to by expert, once a layer.
    ("granitemoehybrid", "ov-stateless"): {"Transpose": 4},
}


@functools.cache
def nodes(name: str, variant: str) -> Counter[str]:
    return executed(compiled(converted(exported(f"{name}/{variant}")).model.ov_model))


@functools.cache
def optimum(name: str) -> Counter[str]:
    return executed(compiled(exported(f"{name}/ov-stateful").ov_model))


@pytest.mark.parametrize(("name", "variant"), PAIRS)
def test_no_more_nodes_than_in_optimums_export(name, variant):
    own = sum(WINDOW.values()) if OWN.get((name, variant)) is WINDOW else 0
    assert nodes(name, variant).total() <= 1.05 * optimum(name).total() + own


@pytest.mark.parametrize(("name", "variant"), PAIRS)
@pytest.mark.parametrize("kind", ["Eltwise", "Gather", "Transpose"])
def test_no_more_operators_of_one_type(name, variant, kind):
    assert nodes(name, variant)[kind] <= optimum(name)[kind] + OWN.get((name, variant), {}).get(kind, 0)


@pytest.mark.parametrize(("name", "variant"), PAIRS)
@pytest.mark.parametrize("kind", ["ScaledDotProductAttention", "RoPE", "RMS", "GatedDeltaNet", "MVN"])
def test_fused_operators_equal_optimum(name, variant, kind):
    assert nodes(name, variant)[kind] == optimum(name)[kind]


def test_no_more_nodes_with_separate_experts():
    assert nodes("qwen3_moe", "onnx").total() <= 1.05 * optimum("qwen3_moe").total()
