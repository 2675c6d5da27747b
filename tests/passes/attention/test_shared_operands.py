"""Operands that layers share: each is written once."""

from __future__ import annotations

from support.loaded import exported, run_once


def test_layers_read_the_same_lengths_tables_and_masks():
    result = run_once(exported("llama/onnx"), "fuse-group-query-attention{padding=any,context=512}")
    fused = [node for node in result.model.graph.nodes if node.op == "GroupQueryAttention"]
    assert len(fused) > 1
    for port in (5, 6, 10):
        assert len({node.inputs[port] for node in fused}) == 1
    rotated = [node for node in result.model.graph.nodes if node.op == "RotaryEmbedding"]
    assert len(rotated) == 2 * len(fused)
    assert all(node.inputs[1:] == rotated[0].inputs[1:] for node in rotated)
