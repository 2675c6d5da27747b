"""Chunks of linear attention, and what one operator makes of them."""

from __future__ import annotations

import functools

import pytest
from support.models import exporters

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify.structure.proof import compare_structures


@functools.cache
def models(family: str = "qwen3_5_text", passes: str = "fuse-linear-attention"):
    source = graphpass.load(exporters("transformers-onnx", family))
    return source, graphpass.PassManager(graphpass.parse(passes)).run(source).model


@pytest.mark.parametrize(
    ("family", "passes"),
    [
        ("qwen3_5_text", "fuse-linear-attention"),
        ("qwen3_5_text", "to-openvino,fuse-gated-delta-net"),
        ("qwen3_5_text", "to-openvino"),
        ("nemotron_h", "fuse-linear-attention"),
        ("nemotron_h", "to-openvino"),
        ("nemotron_h", "to-openvino,rechunk-linear-attention"),
    ],
)
def test_all_besides_is_equal_for_every_input(family, passes):
    proof = compare_structures(*models(family, passes))
    assert proof is not None
    assert proof.unpadded == proof.operators, list(proof.in_words())
    assert not proof.is_complete
    assert proof.chunks
    assert proof.added == ()
    assert any("linear attention, as random numbers show" in line for line in proof.in_words())


@pytest.mark.parametrize("port", [0, 1, 4, 5])
def test_other_operands_are_not_equal(port):
    """Query, key, decay or beta of the operator, halved."""
    source, model = models()
    copy = model.clone()
    assert isinstance(copy, OnnxModel)
    rewriter = copy.rewriter()
    (node,) = copy.graph.of_op("LinearAttention")
    write = rewriter.under("half")
    rewriter.redirect(node, port, write.op("Multiply", node.source(port), write.number(0.5, "f32")))
    rewriter.finish()
    proof = compare_structures(source, copy)
    assert proof is not None
    assert proof.unpadded < proof.operators
