"""The pass `join-projections`: what it joins, what stays apart and why, and the numbers."""

from __future__ import annotations

import pytest
from support.loaded import exported, run_once
from support.operators import count_operators
from support.reference_tokens import generates_reference_tokens

from graphpass.verify import compare

FUSE = "fuse-group-query-attention{padding=right,context=128}"

#: Products joined and splits dropped of each decoder.
JOINED = {
    "llama": {"products joined": 6},
    "gpt_oss": {"products joined": 6},
    "mistral_sw8": {"products joined": 6},
    "phi3": {"splits dropped": 2},
    "gpt2": {"splits dropped": 2},
}

#: What stands in front of attention in the others.
APART = {"qwen3": "Reshape", "gptj": "RotaryEmbedding", "opt": "Multiply"}


@pytest.mark.parametrize("name", ["llama", *(pytest.param(name, marks=pytest.mark.slow) for name in [*JOINED][1:])])
def test_joined_products_compute_the_same(name):
    fused = run_once(exported(f"{name}/onnx"), FUSE).model
    result = run_once(fused, "join-projections")
    assert result.records[-1].result.statistics == JOINED[name]
    joined = JOINED[name].get("products joined", 0)
    assert count_operators(fused)["MatMul"] - count_operators(result.model)["MatMul"] == joined * 2 // 3
    assert not any(node.input(1) or node.input(2) for node in result.model.graph.of_op("GroupQueryAttention"))
    assert compare(exported(f"{name}/onnx"), result.model, steps=4, edits=True, padding="right").passed
    assert generates_reference_tokens(result.model, name)
    again = run_once(result.model, "join-projections")
    assert not again.records[-1].result.changed


def test_weights_stay_in_their_places():
    fused = run_once(exported("llama/onnx"), FUSE).model
    result = run_once(fused, "join-projections").model
    held = [
        {tensor.name: tensor.SerializeToString() for tensor in one.proto.graph.initializer} for one in (fused, result)
    ]
    assert held[0] == held[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", APART)
def test_unjoined_projections_have_a_reason(name):
    result = run_once(exported(f"{name}/onnx"), f"{FUSE},join-projections")
    done = result.records[-1].result
    assert not done.changed
    (note,) = done.notes
    assert f"2 attention are not joined: {APART[name]} is between a product and attention" in note
