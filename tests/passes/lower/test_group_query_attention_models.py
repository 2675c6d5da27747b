"""Lowering group-query-attention in exports of ONNX Runtime GenAI's builder, and in what graphpass fuses."""

from __future__ import annotations

import functools

import numpy
import onnx
import pytest
from edits.machine import Subject, run_edits
from edits.oracle import Recomputation
from openvino._offline_transformations import paged_attention_transformation
from support import loaded
from support.constant_outputs import constant_of
from support.decode import compiled, fused_attention, greedy
from support.loaded import exported, onnx_model
from support.models import export, reference
from support.operators import count_operators

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.io import load
from graphpass.ir.model import Model
from graphpass.runtime import open_session
from graphpass.testing import run
from graphpass.verify import compare

MODELS = ["llama", "qwen3", "llama_12l"]


def lowered(model: Model) -> OnnxModel:
    result = run(model, "lower-operators")
    assert isinstance(result, OnnxModel)
    return result


class TestStructure:
    def test_the_operator_becomes_plain_attention(self):
        model = load(export("llama", "onnx-genai"))
        assert isinstance(model, OnnxModel)
        assert count_operators(model)["GroupQueryAttention"] == 2
        after = lowered(model)
        ops = count_operators(after)
        assert "GroupQueryAttention" not in ops
        assert (ops["Softmax"], ops["CumSum"]) == (2, 1)
        # What made the lengths is gone with the operator.
        assert "ReduceSum" not in ops
        after.validate()

    def test_ports_keep_their_names_and_learn_the_size_of_a_head(self):
        model = load(export("llama", "onnx-genai"))
        after = lowered(model)
        assert [port.name for port in after.inputs] == [port.name for port in model.inputs]
        assert [port.name for port in after.outputs] == [port.name for port in model.outputs]
        past = next(port for port in after.inputs if port.name == "past_key_values.0.key")
        assert past.shape == ("batch_size", 2, "past_sequence_length", 16)

    def test_weights_are_unchanged(self):
        model = load(export("llama", "onnx-genai"))
        after = lowered(model)
        assert list(after.proto.graph.initializer) == list(model.proto.graph.initializer)

    def test_all_caches_are_found_again(self):
        model = load(export("qwen3", "onnx-genai"))
        before, after = (graphpass.analyze_caches(one) for one in (model, lowered(model)))
        assert [(cache.name, cache.kind, cache.role, cache.shape) for cache in after.caches] == [
            (cache.name, cache.kind, cache.role, cache.shape) for cache in before.caches
        ]


@functools.cache
def windowed(name: str = "llama", layers: int = 2, **attributes: int) -> OnnxModel:
    """The builder's export with a window in its first layers, as the builder writes sliding layers."""
    model = onnx_model(name, "onnx-genai")
    for layer in range(layers):
        for node in model.proto.graph.node:
            if node.op_type != "GroupQueryAttention" or f"past_key_values.{layer}.key" not in node.input:
                continue
            kept = [attribute for attribute in node.attribute if attribute.name not in attributes]
            del node.attribute[:]
            node.attribute.extend(kept)
            node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in attributes.items())
    model.mark_edited()
    return model


class TestCachesOfAWindow:
    """``sliding_window_cache``: past and present are as long as the window, from the first step on."""

    def test_onnx_runtime_runs_the_result(self):
        sliding = open_session(windowed(local_window_size=8, sliding_window_cache=1))
        growing = open_session(windowed(local_window_size=8))
        ids = numpy.random.default_rng(0).integers(3, 300, 13)
        found, expected = sliding.prefill(ids), growing.prefill(ids)
        for _ in range(12):
            numpy.testing.assert_allclose(found, expected, atol=1e-4)
            token = expected[:, -1].argmax(-1)
            found, expected = sliding.step(token), growing.step(token)

    def test_windowed_caches_become_full_caches_with_a_windowed_mask(self):
        source = windowed(local_window_size=8, sliding_window_cache=1)
        model = lowered(source)
        assert "GroupQueryAttention" not in count_operators(model)
        assert {block.window_in for block in graphpass.analyze_caches(model).attention} == {"mask"}
        comparison = compare(source, model)
        assert comparison.passed, comparison.summary()
        assert any("padding: no input attention_mask" in skipped for skipped in comparison.skipped)

    @pytest.mark.parametrize("layers", [2, pytest.param(1, marks=pytest.mark.slow)])
    def test_sessions_edit_windowed_caches(self, layers):
        """By going back to states that were kept."""
        growing = windowed(layers=layers, local_window_size=8)
        sliding = windowed(layers=layers, local_window_size=8, sliding_window_cache=1)
        recompute = Recomputation(open_session(growing))
        session = open_session(sliding)
        run_edits(Subject(session, recompute, kind="linear"), 8)
        session.reset()
        session.prefill([1, 5, 9])
        session.step([2])
        assert session.stats.snapshots > 0


@pytest.mark.parametrize("name", ["llama", *(pytest.param(one, marks=pytest.mark.slow) for one in ("bloom", "gemma2"))])
def test_rows_of_full_length_hide_padding_by_their_bias(name):
    """As fuse-group-query-attention writes it: a bias hides padding, and all rows are as long as the mask."""
    source = exported(f"{name}/onnx")
    fused = loaded.run_once(source, "fuse-group-query-attention{context=128}").model
    model = lowered(fused)
    assert "GroupQueryAttention" not in count_operators(model)
    assert compare(source, model, steps=4).passed


def converted(model: str) -> Model:
    return loaded.converted(exported(f"{model}/onnx-genai")).model


def converted_with_window() -> Model:
    return loaded.converted(windowed(local_window_size=4)).model


@pytest.mark.parametrize("model", MODELS)
class TestOnTheCpuPlugin:
    def test_all_attention_is_fused(self, model):
        theirs = compiled(exported(f"{model}/ov-stateful").ov_model)
        assert fused_attention(compiled(converted(model).ov_model)) == fused_attention(theirs) > 0

    def test_generates_the_reference_tokens(self, model):
        expected = reference(model)
        request = compiled(converted(model).ov_model).create_infer_request()
        assert greedy(request, [expected["prompt_ids"]], 12) == [expected["greedy_ids"]]

    def test_generates_the_same_after_padding(self, model):
        expected = reference(model)
        request = compiled(converted(model).ov_model).create_infer_request()
        prompts = [expected["prompt_ids"], [17, 4, *expected["prompt_ids"]]]
        assert greedy(request, prompts, 12)[0] == expected["greedy_ids"]


class TestWindow:
    def test_computes_the_same(self):
        comparison = compare(windowed(local_window_size=4), converted_with_window(), steps=12)
        assert comparison.passed, comparison.summary()
        assert not comparison.skipped

    def test_attention_with_a_window_is_fused(self):
        assert fused_attention(compiled(converted_with_window().ov_model)) == 2

    def test_paged_attention_finds_the_cache(self):
        paged = converted_with_window().ov_model.clone()
        paged_attention_transformation(paged)
        blocks = [op for op in paged.get_ordered_ops() if op.get_type_name() == "PagedAttentionExtension"]
        windows = [constant_of(block.input_value(10)) for block in blocks]
        assert [None if window is None else int(window.item()) for window in windows] == [4, 4]
