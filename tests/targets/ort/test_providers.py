"""`ort{device=...}`: what a provider's kernels take is written, and what they do not take is refused in advance."""

from __future__ import annotations

import json

import pytest
from support.loaded import converted, exported, run_once
from support.operators import count_operators

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.pipeline import parse_target
from graphpass.verify import compare

CUDA = parse_target("ort{device=cuda}")


def findings(model, target=CUDA):
    found = target.predict(model, analyze_caches(model))
    return [(one.verdict, one.reason) for one in found if one.subject == "attention"]


def test_attention_has_no_bias_and_computes_in_f16():
    result = converted(exported("llama/onnx"), "ort{device=cuda}").model
    attention = [node for node in result.proto.graph.node if node.op_type == "GroupQueryAttention"]
    assert [len(node.input) for node in attention] == [9, 9]  # tables last
    assert count_operators(result)["SkipSimplifiedLayerNormalization"] == 4
    assert {verdict for verdict, _ in findings(result)} == {"fused"}
    assert compare(exported("llama/onnx"), result, steps=4, padding="right").passed


def test_a_mask_without_attributes_stays_in_the_graph():
    records = converted(exported("bloom/onnx"), "ort{device=cuda}").records
    record = next(one for one in records if one.step.name == "fuse-group-query-attention")
    assert not record.result.changed
    assert (
        "its mask would be a bias: its mask has components other than causal, window and padding: alibi"
        in record.result.notes[0]
    )


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("ort", "it has a bias of padding, which the provider's kernel lacks"),
        ("ort{padding=right}", "CUDAExecutionProvider has a kernel for bf16 and f16, not for f32"),
        ("ort{device=cuda,padding=any}", "run fuse-group-query-attention{padding=right,lacks=[padding,mask]}"),
    ],
)
def test_attention_unsupported_by_cuda_is_reported(target, reason):
    found = findings(converted(exported("llama/onnx"), target).model)
    assert len(found) == 2
    assert all(reason in str(told) for _, told in found)


@pytest.mark.parametrize("device", ["dml", "webgpu"])
def test_directml_and_webgpu_get_operators_of_their_kernels(device):
    target = parse_target(f"ort{{device={device}}}")
    result = converted(exported("llama/onnx"), f"ort{{device={device}}}").model
    assert {verdict for verdict, _ in findings(result, target)} == {"fused"}
    inputs = [len(node.input) for node in result.proto.graph.node if node.op_type == "GroupQueryAttention"]
    # DirectML: query, key, value, caches and lengths alone; WebGPU: rotated before it, with a bias of padding.
    assert inputs == [7, 7] if device == "dml" else [11, 11]
    assert count_operators(result)["RotaryEmbedding"] == 4
    assert compare(exported("llama/onnx"), result, steps=4, padding=target.reads_padding).passed


@pytest.mark.parametrize(
    ("name", "device", "reason"),
    [
        ("mistral_sw8", "dml", "it has a window, which the provider's kernel lacks"),
        ("gpt_oss", "dml", "it has attention sinks, which the provider's kernel lacks"),
        ("gemma2", "webgpu", "it has a soft cap, which the provider's kernel lacks"),
        (
            "bloom",
            "webgpu",
            "its mask would be a bias: its mask has components other than causal, window and padding: alibi",
        ),
    ],
)
def test_attention_unsupported_by_a_kernel_stays(name, device, reason):
    records = converted(exported(f"{name}/onnx"), f"ort{{device={device}}}").records
    record = next(one for one in records if one.step.name == "fuse-group-query-attention")
    assert reason in "\n".join(record.result.notes)
    found = findings(converted(exported(f"{name}/onnx"), "ort").model, parse_target(f"ort{{device={device}}}"))
    assert "refused" in {verdict for verdict, _ in found}


def test_directml_supports_one_token_after_a_past():
    target = parse_target("ort{device=dml}")
    model = converted(exported("llama/onnx"), "ort{device=dml}").model
    found = [one.reason for one in target.predict(model, analyze_caches(model)) if one.subject == "model"]
    assert found == [
        "DmlExecutionProvider computes several new tokens as a prompt without a past: feed them one at a time"
    ]


def test_models_are_not_tried_on_another_device():
    told = CUDA.observe(exported("llama/onnx"))
    assert told == "trials run only on the CPU and WebGPU providers, not on CUDAExecutionProvider"


def test_genai_config_names_the_device():
    target = parse_target("ort-genai{device=cuda}")
    model = exported("llama/onnx")
    result = run_once(model, *target.pipeline(model)).model
    config = json.loads(target.files(result, model.path)["genai_config.json"])
    assert config["model"]["decoder"]["session_options"] == {"provider_options": [{"cuda": {}}]}
