"""The pass `fuse-functions`, on forms of several exporters."""

from __future__ import annotations

import pytest
from support.loaded import exported, run_once

from graphpass.verify import compare


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("gemma3_text", 4), ("gpt2", 2), ("gptj", 2)])
def test_fused_models_compute_the_same(name, count):
    result = run_once(exported(f"{name}/onnx"), "fuse-functions")
    assert result.records[-1].result.statistics["activations fused"] == count
    assert sum(node.op_type == "FastGelu" for node in result.model.proto.graph.node) == count
    assert not any("mlp" in node.name for node in result.model.graph.of_op("Tanh"))
    assert compare(exported(f"{name}/onnx"), result.model, steps=2).passed
