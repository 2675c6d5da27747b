"""Lowering group-query-attention: the same numbers on ONNX Runtime, and attention that the CPU plugin fuses."""

from __future__ import annotations

import functools

import numpy
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from openvino._offline_transformations import paged_attention_transformation
from support import loaded
from support.decode import compiled, fused_attention, greedy
from support.edit_machine import Subject, run_edits
from support.folded import fold
from support.grouped_query import Decoder, Form, build, trajectory
from support.loaded import exported, onnx_model
from support.models import export, reference
from support.oracle import Recomputation

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.manager import PassManager
from graphpass.errors import UnsupportedError
from graphpass.io import load
from graphpass.ir.model import Model
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.lower.lower_operators import LowerOperators
from graphpass.runtime import open_session
from graphpass.verify import compare

MODELS = ["llama", "qwen3", "llama_12l"]

FULL = numpy.ones([2, 5], numpy.int64)
RIGHT = numpy.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
LEFT = numpy.array([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])


def lowered(model: Model) -> OnnxModel:
    result = PassManager([LowerOperators()]).run(model)
    assert result.records[0].result.changed
    assert isinstance(result.model, OnnxModel)
    return result.model


def operators(model: OnnxModel) -> list[str]:
    return [node.op_type for node in model.proto.graph.node]


def check(form: Form, mask: numpy.ndarray, steps: int = 8) -> None:
    model = build(form)
    expected, found = (trajectory(form, one, mask, steps) for one in (model, lowered(model)))
    for want, got in zip(expected, found, strict=True):
        numpy.testing.assert_allclose(got, want, atol=5e-4, rtol=1e-4)


OPTIONS = [
    Form(),
    Form(packed=True),
    Form(interleaved=True),
    Form(rotary=False),
    Form(head_dim=32),
    Form(head_dim=32, interleaved=True, packed=True),
    Form(heads=4, kv_heads=4),
    Form(heads=6, kv_heads=1),
    Form(window=3),
    Form(window=1),
    Form(softcap=2.0),
    Form(scale=0.7),
    Form(sink=True),
    Form(smooth=True),
    Form(positions=True),
    Form(sink=True, window=3, softcap=1.0),
    Form(opset=13),
    Form(opset=21),
]


@pytest.mark.parametrize("mask", [FULL, RIGHT], ids=["full", "right"])
@pytest.mark.parametrize("form", OPTIONS, ids=str)
def test_onnx_runtime_computes_the_same(form, mask):
    check(form, mask)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_bias_is_added_behind_the_soft_cap(softcap):
    check(Form(bias=True, softcap=softcap), FULL)


@settings(deadline=None, max_examples=40)
@given(
    form=st.builds(
        lambda groups, kv_heads, **given: Form(heads=groups * kv_heads, kv_heads=kv_heads, **given),
        st.integers(1, 3),
        kv_heads=st.integers(1, 3),
        head_dim=st.sampled_from([16, 32]),
        packed=st.booleans(),
        rotary=st.booleans(),
        interleaved=st.booleans(),
        window=st.sampled_from([-1, 1, 2, 4]),
        softcap=st.sampled_from([0.0, 3.0]),
        scale=st.sampled_from([0.0, 0.2]),
        sink=st.booleans(),
        smooth=st.booleans(),
    ),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3),
)
def test_any_options_and_lengths(form, lengths):
    mask = numpy.array([[1] * length + [0] * (max(lengths) - length) for length in lengths])
    check(form, mask, steps=3)


@pytest.mark.parametrize("form", [Form(), Form(window=3), Form(sink=True)], ids=str)
def test_padding_in_front_changes_nothing(form):
    """ONNX Runtime's operator takes it for tokens; the mask says better."""
    model = lowered(build(form))
    random = numpy.random.default_rng(8)

    batch, alone = Decoder(form, model), Decoder(form, model)
    hidden = random.standard_normal([2, 5, 32]).astype(numpy.float32)
    mask = LEFT
    numpy.testing.assert_allclose(
        batch.step(hidden, mask)[1, 2:], alone.step(hidden[1:, 2:], mask[1:, 2:])[0], atol=5e-4
    )
    for _ in range(4):
        hidden = random.standard_normal([2, 1, 32]).astype(numpy.float32)
        mask = numpy.concatenate([mask, numpy.ones([2, 1], numpy.int64)], 1)
        numpy.testing.assert_allclose(batch.step(hidden, mask)[1], alone.step(hidden[1:], mask[1:, 2:])[0], atol=5e-4)


def test_lengths_without_a_mask_do_for_a_batch_of_one():
    form = Form(lengths="input", batch=1)
    check(form, numpy.ones([1, 5], numpy.int64))


class TestStructure:
    def test_before_and_after(self):
        model = load(export("llama", "onnx-genai"))
        assert isinstance(model, OnnxModel)
        assert operators(model).count("GroupQueryAttention") == 2
        after = lowered(model)
        ops = operators(after)
        assert "GroupQueryAttention" not in ops
        assert (ops.count("Softmax"), ops.count("CumSum")) == (2, 1)
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

    def test_weights_stay_where_they_are(self):
        model = load(export("llama", "onnx-genai"))
        after = lowered(model)
        assert list(after.proto.graph.initializer) == list(model.proto.graph.initializer)

    def test_a_buffer_of_fixed_size_becomes_one_that_grows(self):
        model = build(Form())
        for info in [*model.proto.graph.input[2:], *model.proto.graph.output[1:]]:
            info.type.tensor_type.shape.dim[2].dim_value = 64
        after = lowered(model)
        assert after.inputs[2].shape == ("batch", 2, "past_sequence_length", 16)
        assert after.outputs[1].shape == ("batch", 2, "total_sequence_length", 16)

    def test_all_caches_are_found_again(self):
        model = load(export("qwen3", "onnx-genai"))
        before, after = (graphpass.analyze_caches(one) for one in (model, lowered(model)))
        assert [(cache.name, cache.kind, cache.role, cache.shape) for cache in after.caches] == [
            (cache.name, cache.kind, cache.role, cache.shape) for cache in before.caches
        ]

    def test_twice_is_once(self):
        once = lowered(build(Form()))
        result = PassManager([LowerOperators()]).run(once)
        assert not result.records[0].result.changed


def windowed(layers: int = 2, **given: int) -> OnnxModel:
    """llama with a window in its first layers, as the builder of onnxruntime-genai writes sliding layers."""
    model = onnx_model("llama", "onnx-genai")
    for layer in range(layers):
        for node in model.proto.graph.node:
            if node.op_type != "GroupQueryAttention" or f"past_key_values.{layer}.key" not in node.input:
                continue
            kept = [attribute for attribute in node.attribute if attribute.name not in given]
            del node.attribute[:]
            node.attribute.extend(kept)
            node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in given.items())
    model.mark_edited()
    return model


class TestCachesOfAWindow:
    """``sliding_window_cache``: past and present are as long as the window, from the first step on."""

    def test_onnx_runtime_runs_them(self):
        sliding = open_session(windowed(local_window_size=8, sliding_window_cache=1))
        growing = open_session(windowed(local_window_size=8))
        ids = numpy.random.default_rng(0).integers(3, 300, 13)
        found, expected = sliding.prefill(ids), growing.prefill(ids)
        for _ in range(12):
            numpy.testing.assert_allclose(found, expected, atol=1e-4)
            token = expected[:, -1].argmax(-1)
            found, expected = sliding.step(token), growing.step(token)

    def test_they_become_caches_of_all_positions_with_a_window_in_the_mask(self):
        source = windowed(local_window_size=8, sliding_window_cache=1)
        model = lowered(source)
        assert "GroupQueryAttention" not in operators(model)
        assert {block.window_in for block in graphpass.analyze_caches(model).attention} == {"mask"}
        comparison = compare(source, model)
        assert comparison.passed, comparison.summary()
        assert any("padding: it cannot be hidden" in skipped for skipped in comparison.skipped)

    @pytest.mark.parametrize("layers", [2, pytest.param(1, marks=pytest.mark.slow)])
    def test_sessions_edit_them(self, layers):
        """By going back to states that were kept."""
        growing = windowed(layers, local_window_size=8)
        sliding = windowed(layers, local_window_size=8, sliding_window_cache=1)
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
    fused = loaded.ran(source, "fuse-group-query-attention{context=128}").model
    model = lowered(fused)
    assert "GroupQueryAttention" not in operators(model)
    assert compare(source, model, steps=4).passed


class TestRefusals:
    def refused(self, model: OnnxModel, match: str) -> None:
        with pytest.raises(UnsupportedError, match=match) as failure:
            PassManager([LowerOperators()]).run(model)
        assert failure.value.id in {"GP340", "GP341"}
        assert "gqa" in failure.value.message

    def test_lengths_that_come_from_outside(self):
        self.refused(build(Form(lengths="input")), "seqlens_k, is not the sum of an attention mask")

    @pytest.mark.parametrize(("name", "value"), [("qk_output", 1), ("kv_cache_bit_width", 8)])
    def test_attributes(self, name, value):
        self.refused(build(Form(window=3), **{name: value}), f"it has {name} = {value}")

    def test_quantized_caches(self):
        model = build(Form(sink=True))
        node = model.proto.graph.node[-1]
        node.input.extend(["key_scale", "value_scale"])
        self.refused(model, "a quantized cache, key_scale")

    def test_old_operator_sets(self):
        model = build(Form())
        model.proto.opset_import[0].version = 12
        self.refused(model, "opset 12")

    def test_sizes_that_are_not_known(self):
        model = build(Form(packed=True))
        model.proto.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "width"
        tensor = next(tensor for tensor in model.proto.graph.initializer if tensor.name == "weight_qkv")
        model.proto.graph.initializer.remove(tensor)
        model.proto.graph.input.append(
            onnx.helper.make_tensor_value_info("weight_qkv", onnx.TensorProto.FLOAT, ["width", "wide"])
        )
        self.refused(model, "the size of its heads is not known")


def converted(model: str, window: int = -1) -> Model:
    return loaded.converted(exported(f"{model}/onnx-genai") if window < 0 else with_window(model, window)).model


@functools.cache
def with_window(model: str, window: int) -> OnnxModel:
    """The builder's export, with a window in each layer."""
    source = onnx_model(model, "onnx-genai")
    for node in source.proto.graph.node:
        for attribute in node.attribute:
            if attribute.name == "local_window_size":
                attribute.i = window
    source.mark_edited()
    return source


@pytest.mark.parametrize("model", MODELS)
class TestOnTheCpuPlugin:
    def test_all_attention_is_fused(self, model):
        theirs = compiled(exported(f"{model}/ov-stateful").ov_model)
        assert fused_attention(compiled(converted(model).ov_model)) == fused_attention(theirs) > 0

    def test_generates_what_pytorch_generates(self, model):
        expected = reference(model)
        request = compiled(converted(model).ov_model).create_infer_request()
        assert greedy(request, [expected["prompt_ids"]], 12) == [expected["greedy_ids"]]

    def test_generates_the_same_behind_padding(self, model):
        expected = reference(model)
        request = compiled(converted(model).ov_model).create_infer_request()
        prompts = [expected["prompt_ids"], [17, 4, *expected["prompt_ids"]]]
        assert greedy(request, prompts, 12)[0] == expected["greedy_ids"]


class TestWindow:
    def test_computes_the_same(self):
        comparison = compare(with_window("llama", 4), converted("llama", 4), steps=12)
        assert comparison.passed, comparison.summary()
        assert not comparison.skipped

    def test_is_fused(self):
        assert fused_attention(compiled(converted("llama", 4).ov_model)) == 2

    def test_paged_attention_sees_it(self):
        paged = converted("llama", 4).ov_model.clone()
        paged_attention_transformation(paged)
        blocks = [op for op in paged.get_ordered_ops() if op.get_type_name() == "PagedAttentionExtension"]
        windows = [fold(block.input_value(10)) for block in blocks]
        assert [None if window is None else int(window.item()) for window in windows] == [4, 4]


@pytest.mark.parametrize(
    ("form", "left"),
    [
        (Form(), ""),
        (Form(packed=True, interleaved=True, head_dim=32), ""),
        (Form(window=3, sink=True), ""),
        (Form(smooth=True), ""),
        (Form(bias=True), ""),
        (Form(softcap=2.0), "soft-capped"),
    ],
    ids=str,
)
def test_fuse_attention_takes_it(form, left):
    result = PassManager([LowerOperators(), ToOpenVINO(), FuseAttention()]).run(build(form))
    notes = result.records[-1].result.notes
    kinds = [op.get_type_name() for op in result.model.ov_model.get_ops()]
    assert kinds.count("ScaledDotProductAttention") == (0 if left else 1)
    assert left in "".join(notes)
