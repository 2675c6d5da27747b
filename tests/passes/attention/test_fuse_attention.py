"""fuse-attention: what it takes, what it leaves, and that it computes the same."""

from __future__ import annotations

from collections import Counter

import numpy
import openvino
import pytest
from hypothesis import given, settings, strategies as st
from openvino import opset13 as ops
from support.attention_graphs import (
    HEAD_DIM,
    HEADS,
    MASK_SHAPES,
    Form,
    Mask,
    Scale,
    Sink,
    Sizes,
    build,
    check,
    fused,
    infer,
    infer_each,
)
from support.loaded import exported, openvino_after, run_once
from support.quick_cases import quick_product
from support.random_inputs import random_inputs

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.convert.to_openvino import ToOpenVINO

TEXT = {"llama": 2, "gpt2": 2, "qwen3": 2, "gemma3_text": 4, "qwen3_moe": 2, "deepseek_v3": 2, "llama_12l": 12}
OTHERS = {
    ("llama", "onnx-nocache", "model"): 2,
    ("llama", "onnx-fp16", "model"): 2,
    ("t5", "onnx", "encoder_model"): 2,
    ("t5", "onnx", "decoder_model"): 4,
    ("t5", "onnx", "decoder_with_past_model"): 4,
    ("whisper", "onnx", "encoder_model"): 2,
    ("whisper", "onnx", "decoder_model"): 4,
    ("whisper", "onnx", "decoder_with_past_model"): 4,
}
EXPORTS = {(name, "onnx", "model"): count for name, count in TEXT.items()} | OTHERS


def converted(name: str, variant: str = "onnx", file: str = "model") -> OpenVINOModel:
    place = f"{name}/{variant}" if file == "model" else f"{name}/{variant}/{file}.onnx"
    return openvino_after(exported(place), ToOpenVINO())


def operators(model: openvino.Model) -> Counter[str]:
    return Counter(op.get_type_name() for op in model.get_ops())


@pytest.mark.parametrize(("place", "count"), EXPORTS.items(), ids=map("-".join, EXPORTS))
def test_attention_of_exports_is_fused(place, count):
    before = converted(*place)
    softmaxes = operators(before.ov_model)["Softmax"]
    result = run_once(before, FuseAttention())
    after = result.model
    assert result.records[0].result.statistics == {"attention fused": count, "attention left": 0}
    assert result.records[0].result.notes == ()
    left = operators(after.ov_model)
    assert left["ScaledDotProductAttention"] == count
    assert left["Softmax"] == softmaxes - count
    assert after.inputs == before.inputs
    assert after.outputs == before.outputs
    after.validate()

    again = PassManager([FuseAttention()]).run(after)
    assert not again.records[0].result.changed
    assert again.model.digest() == after.digest()


@pytest.mark.parametrize("place", EXPORTS, ids="-".join)
def test_exports_compute_the_same(place):
    before = converted(*place)
    after = openvino_after(before, FuseAttention())
    tolerance = 5e-3 if "fp16" in place[1] else 1e-4
    has_past = any("past" in port.name for port in before.inputs)
    sizes = ((4, 3), (1, 6)) if has_past else ((7, 0),)
    given = [random_inputs(before, length=length, past=past, padding=2) for length, past in sizes]
    for expected, found in zip(*(infer_each(model.ov_model, given) for model in (before, after)), strict=True):
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            assert value.dtype == found[name].dtype
            assert value.shape == found[name].shape
            assert numpy.isfinite(found[name]).all(), name
            if name == "logits" and not has_past:
                # Where the first sequence is padding, a row sees nothing.
                value[0, :2] = found[name][0, :2]
            numpy.testing.assert_allclose(found[name], value, atol=tolerance, rtol=tolerance, err_msg=name)


def test_padding_at_the_start_of_a_batch():
    before = converted("llama")
    after = openvino_after(before, FuseAttention())
    given = random_inputs(before, length=5, past=0, padding=2)
    expected, found = infer(before.ov_model, given)["logits"], infer(after.ov_model, given)["logits"]
    assert numpy.isfinite(found).all()
    numpy.testing.assert_allclose(found[1], expected[1], atol=1e-5)
    numpy.testing.assert_allclose(found[0, 2:], expected[0, 2:], atol=1e-5)


SCALES = st.builds(
    Scale,
    st.sampled_from([0.25, 0.3, 1.0, 2.0]),
    st.sampled_from(["query", "key", "scores", "after masks"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["constant", "vector", "shape", "input"]),
)
MASKS = st.builds(
    Mask,
    st.sampled_from(MASK_SHAPES),
    st.sampled_from(["add", "add left", "subtract", "keep", "hide", "chosen"]),
    st.sampled_from([-numpy.inf, float(numpy.finfo(numpy.float32).min), -65504.0, -1e9]),
)
SINKS = st.builds(
    Sink,
    st.sampled_from([(1, HEADS, 1, 1), (HEADS, 1, 1), (1, 1, 1, 1), (1,), ()]),
    st.sampled_from(["first", "last"]),
    st.sampled_from(["Slice", "StridedSlice", "VariadicSplit"]),
    st.booleans(),
)
#: Without AVX-512, the CPU plugin of OpenVINO 2026.4.1 does not compile longer chains: "not enough registers".
MOST_OPERATORS = 5
FORMS = st.builds(
    Form,
    st.lists(SCALES, max_size=3).map(tuple),
    st.lists(MASKS, max_size=3).map(tuple),
    st.booleans(),
    st.sampled_from(["transpose", "matmul", "merged"]),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
    st.sampled_from([6, 8]),
    sink=st.none() | SINKS,
    shifted=st.booleans(),
).filter(lambda form: len(form.scales) + len(form.masks) <= MOST_OPERATORS) | st.builds(
    Form,
    st.lists(SCALES, max_size=2).map(tuple),
    st.lists(MASKS, max_size=1).map(tuple),
    key=st.sampled_from(["once", "stored"]),
)
SIZES = st.builds(Sizes, st.integers(1, 3), st.integers(1, 4), st.integers(1, 5))


@settings(max_examples=15)
@given(FORMS, SIZES, st.integers(0, 99))
def test_any_form_computes_the_same(form, sizes, seed):
    check(form, sizes, seed)


@pytest.mark.slow
@settings(max_examples=60)
@given(FORMS, SIZES, st.integers(0, 99))
def test_any_of_many_forms_computes_the_same(form, sizes, seed):
    check(form, sizes, seed)


@pytest.mark.parametrize(("shape", "how"), quick_product(MASK_SHAPES, ["add", "keep", "hide", "subtract"]))
def test_any_mask_computes_the_same(shape, how):
    check(Form(masks=(Mask(shape, how),)), Sizes())


@pytest.mark.parametrize(
    "scale",
    [
        Scale(0.3, "query", is_left=True),
        Scale(0.3, "key", is_left=True),
        Scale(0.3, "scores", is_left=True),
        Scale(4.0, "scores", divides=True),
        Scale(4.0, "after masks", divides=True),
        Scale(0.3, "query", source="input"),
        Scale(0.0, "query"),
    ],
    ids=str,
)
def test_any_scale_computes_the_same(scale):
    check(Form(scales=(scale,), masks=(Mask(),)), Sizes())


def test_a_scale_made_of_known_dimensions_becomes_a_constant():
    form = Form(scales=(Scale(0, "scores", divides=True, source="shape"),))
    after, _, _ = fused(build(form))
    attention = next(op for op in after.get_ops() if op.get_type_name() == "ScaledDotProductAttention")
    assert attention.input_value(4).get_node().data.item() == pytest.approx(HEAD_DIM**-0.5)


@pytest.mark.parametrize("key", ["transpose", "merged"])
def test_the_operator_reads_the_key_directly_from_the_cache(key):
    after, types, _ = fused(build(Form(past=True, key=key)))
    attention = next(op for op in after.get_ops() if op.get_type_name() == "ScaledDotProductAttention")
    assert [attention.input_value(port).get_node().get_type_name() for port in (1, 2)] == ["Concat", "Concat"]
    assert "Transpose" not in types


def test_one_transpose_of_the_key_is_enough():
    assert check(Form(key="once"), Sizes())["Transpose"] == 1
    assert check(Form(key="stored"), Sizes())["Transpose"] == 1


def test_one_block_directly_on_top_of_another():
    def block(query: openvino.Node, name: str) -> openvino.Node:
        scores = ops.multiply(ops.matmul(query, source, False, True), ops.constant(0.3, dtype=openvino.Type.f32))
        weights = ops.softmax(scores, -1)
        weights.set_friendly_name(name)
        return ops.matmul(weights, source, False, False)

    source = ops.parameter([-1, 2, -1, 8], numpy.float32)
    model = openvino.Model([ops.result(block(block(source, "low"), "high"))], [source])
    after, types, _ = fused(model.clone())
    assert types.count("ScaledDotProductAttention") == 2
    assert "Softmax" not in types
    data = numpy.random.default_rng(0).standard_normal([2, 2, 3, 8], numpy.float32)
    compiled = [openvino.compile_model(each, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}) for each in (model, after)]
    expected, found = (each([data])[0] for each in compiled)
    numpy.testing.assert_allclose(found, expected, atol=1e-6)


def test_layers_share_a_mask():
    after = openvino_after(converted("gpt2"), FuseAttention())
    blocks = [op for op in after.ov_model.get_ops() if op.get_type_name() == "ScaledDotProductAttention"]
    sources = {block.input_value(3).get_node().get_name() for block in blocks}
    before = converted("gpt2")
    masks = {block.masks for block in _attention(before)}
    assert len(sources) == len(masks)


def _attention(model: OpenVINOModel):
    from graphpass.analysis.attention.find import find_attention

    return find_attention(model)
