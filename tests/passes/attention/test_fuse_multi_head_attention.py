"""fuse-multi-head-attention: attention of encoders, and cross attention over stored keys and values."""

from __future__ import annotations

import pytest
from support.models import export

from graphpass import PassManager, load, parse

PASS = parse("fuse-multi-head-attention")


def fused(path):
    return PassManager(PASS).run(load(path))


@pytest.mark.parametrize("name", ["t5", "whisper"])
def test_cross_attention_reads_its_caches_as_they_are_stored(name):
    result = fused(export(name, "onnx") / "decoder_with_past_model.onnx")
    graph = result.model.graph
    read = [[graph.producer(node.source(port)).name for port in (1, 2)] for node in graph.of_op("MultiHeadAttention")]
    assert read == [[f"past_key_values.{layer}.encoder.{role}" for role in ("key", "value")] for layer in (0, 1)]
    assert len(list(graph.of_op("Softmax"))) == 2, "attention over growing caches is unchanged"
    assert not PassManager(PASS).run(result.model).records[0].result.changed


@pytest.mark.parametrize("name", ["t5", "whisper"])
def test_encoders_of_text_and_audio_are_fused(name):
    graph = fused(export(name, "onnx") / "encoder_model.onnx").model.graph
    assert (len(list(graph.of_op("MultiHeadAttention"))), list(graph.of_op("Softmax"))) == (2, [])


def test_masks_are_written_once_with_the_size_of_the_encoder():
    graph = fused(export("t5", "onnx") / "decoder_with_past_model.onnx").model.graph
    biases = {node.source(5) for node in graph.of_op("MultiHeadAttention")}
    assert len(biases) == 1
    assert graph.producer(biases.pop()).op == "Broadcast"
