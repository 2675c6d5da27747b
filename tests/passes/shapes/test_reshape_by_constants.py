"""The pass `reshape-by-constants`: targets that are copied, and the numbers."""

from __future__ import annotations

import pytest
from support.loaded import exported, run_once
from support.operators import count_operators

from graphpass.testing import parse_model
from graphpass.verify import compare


@pytest.mark.parametrize(
    ("name", "targets", "sizes", "shapes"),
    [
        ("gpt2", 12, 11, 25),
        pytest.param("falcon", 11, 23, 17, marks=pytest.mark.slow),
        pytest.param("qwen3", 10, 36, 21, marks=pytest.mark.slow),
        pytest.param("qwen3_moe", 18, 74, 49, marks=pytest.mark.slow),
    ],
)
def test_reshaped_models_compute_the_same(name, targets, sizes, shapes):
    result = run_once(exported(f"{name}/onnx"), "reshape-by-constants")
    assert result.records[-1].result.statistics == {"shapes made constant": targets, "sizes made constant": sizes}
    found = count_operators(result.model)
    assert found["Shape"] == shapes
    assert compare(exported(f"{name}/onnx"), result.model, steps=3, edits=True).passed
    assert not run_once(result.model, "reshape-by-constants").records[-1].result.changed


@pytest.mark.slow
def test_constant_sizes_are_folded():
    """phi3 cuts a product in its middle, which it computes of the product's size."""
    result = run_once(exported("phi3/onnx"), "reshape-by-constants")
    graph = result.model.graph
    cuts = [node for node in graph.of_op("Slice") if "/mlp/" in node.name]
    assert [graph.producer(node.source(port)).op for node in cuts for port in (1, 2)] == ["Constant"] * 8
    assert compare(exported("phi3/onnx"), result.model, steps=2).passed


def test_possibly_different_lengths_are_not_copied():
    """The batch of positions may be 1, so that heads turned by them have a batch that is not proven."""
    graph = run_once(exported("llama/onnx"), "reshape-by-constants").model.graph
    computed = [node.name for node in graph.of_op("Reshape") if graph.producer(node.source(1)).op != "Constant"]
    assert {"/model/layers.0/self_attn/Reshape_7", "/model/layers.1/self_attn/Reshape_7"} <= set(computed)


def test_open_numbers_of_heads_are_stated():
    """phi3's batch and length are of another tensor than the one that is reshaped."""
    before = run_once(exported("phi3/onnx"), "to-openvino").model
    result = run_once(before, "reshape-by-constants{unknown=true}").model
    assert {node.outputs[0].shape[2] for node in _by_head(before)} == {None}
    assert {node.outputs[0].shape[2] for node in _by_head(result)} == {2}
    assert compare(before, result, steps=2).passed
    assert not run_once(result, "reshape-by-constants{unknown=true}").records[-1].result.changed


def _by_head(model):
    """Reshapes of new keys and values, ``[batch, length, heads, head_dim]``."""
    return [node for node in model.graph.of_op("Reshape") if node.name.endswith(("attn/Reshape_1", "attn/Reshape_2"))]


@pytest.mark.parametrize(
    ("shape", "target", "expected"),
    [
        ("1, n, 8", "1, -1, 2, 4", [0, 0, 2, 4]),
        ("1, n, 2, 4", "1, -1, 8", [0, 0, 8]),
        ("b, n, 8", "1, -1, 2, 4", [1, -1, 2, 4]),  # rows are merged with tokens
        ("1, 2, n, 4", "1, -1, 2, 4", [1, -1, 2, 4]),  # the axis after the row is of heads
        ("1, n, 8", "1, -1, 4", [1, -1, 4]),  # each token becomes two
        ("n, 8", "1, -1, 2, 4", [1, -1, 2, 4]),
    ],
)
def test_one_row_and_its_tokens_are_copied(shape, target, expected):
    text = f"%x = Parameter : f32[{shape}]\n%y = Reshape(%x, [{target}])\nResult(%y) {{name=y}}"
    model = parse_model(text, "openvino")
    graph = run_once(model, "reshape-by-constants{rows=true}").model.graph
    (reshape,) = graph.of_op("Reshape")
    assert graph.constant(reshape.source(1), 4).tolist() == expected
