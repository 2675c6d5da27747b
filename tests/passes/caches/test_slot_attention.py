"""Attention over buffers of fixed capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import version_converter
from support import operator_forms
from support.fixed_capacity import CAPACITY, fixed, follow, plain_session, rename_input
from support.loaded import onnx_model
from support.operators import count_operators

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.errors import GraphpassError
from graphpass.runtime import open_session

if TYPE_CHECKING:
    pass


@pytest.mark.parametrize(
    ("name", "fused"), [("llama", 2), ("opt", 2), pytest.param("gemma3_text", 4, marks=pytest.mark.slow), ("bloom", 0)]
)
def test_operators_on_buffers_by_opset(name: str, fused: int) -> None:
    model = OnnxModel(version_converter.convert_version(onnx_model(name).proto, 24))
    result = fixed(model)
    caches = analyze_caches(result)
    assert count_operators(result)["TensorScatter"] == len(caches.caches)
    assert count_operators(result)["Attention"] == fused
    assert caches.kind == "kv"
    growing, static = open_session(model), open_session(result)
    for length in (1, CAPACITY - 4):
        follow(growing, static, np.arange(3, 3 + length), 4)
    ids, mask = np.array([[0, 0, 7, 9], [5, 6, 7, 8]]), np.array([[0, 0, 1, 1], [1, 1, 1, 1]])
    np.testing.assert_allclose(static.prefill(ids, mask)[:, -1], growing.prefill(ids, mask)[:, -1], atol=1e-4)
    np.testing.assert_allclose(static.step([3, 4]), growing.step([3, 4]), atol=1e-4)


def test_attention_leaves_no_copies_of_keys_for_heads() -> None:
    model = OnnxModel(version_converter.convert_version(onnx_model("llama").proto, 24))
    result = fixed(model)
    readers = [node.op_type for node in result.proto.graph.node if "present.0.key" in node.input]
    assert readers == ["Attention"]


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_of_onnx_gets_the_number_of_positions(causal: int) -> None:
    model = operator_forms.attention(24)
    (node,) = [node for node in model.proto.graph.node if node.op_type == "Attention"]
    node.attribute.append(onnx.helper.make_attribute("is_causal", causal))
    rename_input(model, "ids", "input_ids")
    result = fixed(model)
    assert count_operators(result)["TensorScatter"] == 2
    assert [port.name for port in result.inputs][-1] == "past_len"
    sessions = [plain_session(one) for one in (model, result)]
    generator = np.random.default_rng(0)
    past = [generator.standard_normal((2, 3, 5, 8)).astype(np.float32) for _ in range(2)]
    buffers = [np.full((2, 3, CAPACITY, 8), 9, np.float32) for _ in past]
    for buffer, content in zip(buffers, past, strict=True):
        buffer[:, :, :5] = content
    ids = np.array([[1, 2, 3], [4, 5, 6]])
    names = ["logits", "present_key", "present_value"]
    growing = sessions[0].run(names, {"input_ids": ids, "past_key": past[0], "past_value": past[1]})
    feeds = {"input_ids": ids, "past_key": buffers[0], "past_value": buffers[1], "past_len": np.array([5])}
    static = sessions[1].run(names, feeds)
    np.testing.assert_allclose(static[0], growing[0], atol=1e-5)
    for expected, found in zip(growing[1:], static[1:], strict=True):
        np.testing.assert_array_equal(found[:, :, :8], expected)


def test_a_cache_with_another_reader() -> None:
    model = onnx_model("llama")
    model.proto.graph.node.append(onnx.helper.make_node("ReduceSum", ["present.0.key"], ["sum"], keepdims=0))
    model.proto.graph.output.append(onnx.helper.make_tensor_value_info("sum", onnx.TensorProto.FLOAT, []))
    model.mark_edited()
    with pytest.raises(GraphpassError, match=r"is read by ReduceSum sum, which is not attention") as caught:
        fixed(model)
    assert caught.value.id == "GP391"
