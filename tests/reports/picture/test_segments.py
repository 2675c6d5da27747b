"""Division of models into layers, by dataflow."""

from __future__ import annotations

from collections import Counter

import pytest
from support.loaded import exported
from support.models import export
from support.quick_cases import model_files, quick_files

import graphpass
from graphpass.reports.picture.segments import BEFORE, segments_of


def sizes(model):
    """Number of operators before, in and after the layers."""
    found = segments_of(model)
    counts = Counter(
        layer for node, layer in zip(found.graph.nodes, found.of_node, strict=True) if node.op != "Constant"
    )
    return counts[BEFORE], [counts[layer] for layer in range(found.layers)], counts[found.layers]


@pytest.mark.parametrize("variant", ["onnx", "onnx-genai", "ov-stateful"])
def test_equal_layers_have_equally_many_operators(variant):
    before, layers, after = sizes(graphpass.load(export("llama_12l", variant)))
    assert len(layers) == 12
    assert len(set(layers)) == 1
    assert before > 0
    assert 0 < after < layers[0]


@pytest.mark.parametrize(
    ("model", "variant", "layers"),
    [
        ("llama", "onnx-nocache", 2),
        ("lfm2", "ov-stateful", 4),
        ("mamba", "ov-stateful", 2),
        ("qwen3_next", "ov-stateful", 4),
        ("gpt2", "onnx", 2),
        ("whisper", "onnx/encoder_model.onnx", 2),
        ("t5", "onnx/decoder_with_past_model.onnx", 2),
    ],
)
def test_layers_are_found_with_caches_and_without(model, variant, layers):
    folder, _, file = variant.partition("/")
    assert segments_of(graphpass.load(export(model, folder) / file)).layers == layers


@pytest.mark.parametrize("variant", ["onnx", "ov-stateful"])
def test_layers_agree_with_node_names(variant):
    found = segments_of(graphpass.load(export("llama", variant)))
    projections = {}
    for node, layer in zip(found.graph.nodes, found.of_node, strict=True):
        if node.op == "MatMul" and "_proj" in node.name:
            projections[node.name] = layer
    assert len(projections) == 14
    assert all(f"layers.{layer}" in name for name, layer in projections.items())
    embedding = next(node for node in found.graph.nodes if "embed_tokens" in node.name and node.op == "Gather")
    head = next(node for node in found.graph.nodes if "lm_head" in node.name and node.op == "MatMul")
    assert found.of_node[embedding.index] == BEFORE
    assert found.of_node[head.index] == found.layers


@pytest.mark.slow
@pytest.mark.parametrize("file", quick_files(model_files()))
def test_no_operator_reads_from_a_later_layer(file):
    found = segments_of(exported(file))
    for node in found.graph.nodes:
        if node.op != "Constant" and (layer := found.of_node[node.index]) >= 0:
            assert all(value is None or found.of_node[value.node] <= layer for value in node.inputs), node.called
