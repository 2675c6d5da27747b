"""GroupQueryAttention as expressions: its norms, and caches of a window."""

from __future__ import annotations

import pytest
from onnx import NodeProto, helper
from support.loaded import converted, onnx_model, run_once
from support.models import exporters
from verify.structure.edited_operators import edited, proof_of, with_attribute

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.io import load


def without_norms(node: NodeProto) -> None:
    node.input[14] = node.input[15] = ""


def test_norms_inside_group_query_attention():
    reference = load(exporters("builder-webgpu", "qwen3"))
    found = proof_of(reference, converted(reference, "cpu").model)
    assert found.unpadded == found.operators, found.regions
    for edit in (without_norms, with_attribute("qk_norm_epsilon", 1e-3)):
        found = proof_of(reference, edited(reference, "GroupQueryAttention", edit))
        assert found.unpadded < found.operators


def with_window(node: NodeProto) -> None:
    with_attribute("local_window_size", 8)(node)
    with_attribute("sliding_window_cache", 1)(node)


@pytest.fixture(scope="module")
def windowed() -> OnnxModel:
    """Return an export of onnxruntime-genai's builder whose first layer stores the positions of its window."""
    return edited(onnx_model("llama", "onnx-genai"), "GroupQueryAttention", with_window)


def test_a_cache_of_a_window_is_equal_to_one_of_all_positions(windowed):
    growing = run_once(windowed, "lower-operators").model
    found = proof_of(windowed, growing)
    assert found.unpadded == found.operators, found.regions
    assert "caches of a window store all positions that the window shows" in found.assumed
    other = edited(windowed, "GroupQueryAttention", with_attribute("local_window_size", 9))
    found = proof_of(other, growing)
    assert found.unpadded < found.operators


def test_other_readers_of_the_cache_see_its_own_positions(windowed):
    model = windowed.clone()
    graph = model.proto.graph
    graph.node.insert(0, helper.make_node("Shape", ["past_key_values.0.key"], ["stored"], start=2, end=3))
    graph.node.insert(1, helper.make_node("Cast", ["stored"], ["factor"], to=1))
    last = graph.node[-1]
    unscaled, last.output[0] = last.output[0], "unscaled"
    graph.node.append(helper.make_node("Mul", ["unscaled", "factor"], [unscaled]))
    read = OnnxModel(model.proto, model.path)
    found = proof_of(read, edited(read, "GroupQueryAttention", with_attribute("sliding_window_cache", 0)))
    assert found.unpadded < found.operators
