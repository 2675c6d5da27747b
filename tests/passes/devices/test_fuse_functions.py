"""The pass `fuse-functions` on norms and GELUs of several exporters: counts, and the same numbers."""

from __future__ import annotations

import onnx
import pytest
from support.loaded import exported, onnx_model, run_once
from support.operators import count_operators

from graphpass.verify import compare


@pytest.mark.parametrize(
    ("place", "norms"),
    [
        ("mamba/onnx-raw", 3),
        pytest.param("llama/onnx", 5, marks=pytest.mark.slow),
        pytest.param("gemma3_text/onnx", 25, marks=pytest.mark.slow),
        pytest.param("qwen3/onnx", 9, marks=pytest.mark.slow),
        pytest.param("llama/onnx-fp16", 1, marks=pytest.mark.slow),
    ],
)
def test_fused_norms_compute_the_same(place, norms):
    result = run_once(exported(place), "fuse-functions")
    assert result.records[-1].result.statistics["norms fused"] == norms
    found = count_operators(result.model)
    assert found["SimplifiedLayerNormalization"] == norms
    assert compare(exported(place), result.model, steps=3).passed
    assert not run_once(result.model, "fuse-functions").records[-1].result.changed


def test_residuals_read_the_sum_itself():
    result = run_once(exported("llama/onnx"), "fuse-functions").model
    assert not any(node.op_type in {"Cast", "Pow", "Sqrt"} and "norm" in node.name for node in result.proto.graph.node)


def test_opset_23_has_the_norm():
    model = onnx_model("llama")
    model.proto.opset_import[0].version = 23
    found = count_operators(run_once(model, "fuse-functions").model)
    assert (found["RMSNormalization"], found["SimplifiedLayerNormalization"]) == (5, 0)
    assert onnx.defs.has("RMSNormalization", 23, "")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("gemma3_text", 4), ("gpt2", 2), ("gptj", 2)])
def test_fused_activations_compute_the_same(name, count):
    result = run_once(exported(f"{name}/onnx"), "fuse-functions")
    assert result.records[-1].result.statistics["activations fused"] == count
    assert sum(node.op_type == "FastGelu" for node in result.model.proto.graph.node) == count
    assert not any("mlp" in node.name for node in result.model.graph.of_op("Tanh"))
    assert compare(exported(f"{name}/onnx"), result.model, steps=2).passed
