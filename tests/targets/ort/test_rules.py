"""Predictions of what ONNX Runtime does with a model, for each provider."""

import pytest
from support.expert_graphs import experts

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.targets.ort.rules import predict
from graphpass.testing import run, tiny_model


@pytest.fixture(scope="module")
def llama():
    return tiny_model("llama", layers=1)


def found(model, device="cpu", subject=None):
    findings = predict(model, analyze_caches(model), device)
    return [(one.verdict, one.reason) for one in findings if subject is None or one.subject == subject]


def test_attention_as_written_gets_the_pass_that_fuses_it(llama):
    reason = "computed by MatMul and Softmax as written: run fuse-group-query-attention"
    assert found(llama, subject="attention") == [("plain", reason)]
    assert {verdict for verdict, _ in found(llama, subject="cache")} == {"taken"}
    assert found(llama, subject="model") == []


def test_fused_attention_is_one_operator(llama):
    fused = run(llama, "fuse-group-query-attention{context=64}")
    assert found(fused, subject="attention") == [("fused", "one operator, GroupQueryAttention")]


def test_newer_opsets_are_refused(llama):
    newer = llama.clone()
    newer.proto.opset_import[0].version = 27
    reason = "it has opset 27; ONNX Runtime 1.31 supports opsets up to 26"
    assert ("refused", reason) in found(newer, subject="model")
    newer.proto.opset_import[0].version = 26
    assert found(newer, subject="model") == []


def test_bf16_is_refused_without_kernels(llama):
    ((verdict, reason),) = found(run(llama, "change-precision{to=bf16}"), subject="model")
    assert verdict == "refused"
    assert reason.endswith("is in bf16, for which CPUExecutionProvider has no kernels: run change-precision")
    assert found(run(llama, "change-precision{to=bf16}"), "cuda", "model") == []


@pytest.mark.parametrize(
    ("device", "lacking"),
    [
        ("cpu", "CPUExecutionProvider has a kernel for f16 and f32, not for bf16"),
        ("webgpu", "WebGpuExecutionProvider has a kernel for f16 and f32, not for bf16"),
        ("cuda", "it has a bias of padding, which the provider's kernel lacks"),
    ],
)
def test_attention_without_a_kernel_is_refused(llama, device, lacking):
    fused = run(llama, "fuse-group-query-attention{context=64},change-precision{to=bf16}")
    assert found(fused, device, "attention") == [("refused", lacking)]


def test_experts_get_the_pass_that_fuses_them():
    layer = experts("gathered")
    assert found(layer, subject="experts") == [("plain", "computed as written: run fuse-experts")]
    assert found(run(layer, "fuse-experts"), subject="experts") == [("fused", "one operator, MoE")]
