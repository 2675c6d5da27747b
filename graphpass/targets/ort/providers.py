"""Kernels of ONNX Runtime's execution providers, and the forms that are fast on them.

Sources: ``docs/OperatorKernels.md`` of ONNX Runtime (types of GroupQueryAttention and MoE), the kernels named below,
and the output of onnxruntime-genai's builder (0.18, ``models/builders/base.py``).

| provider | tested |
| --- | --- |
| CPU | yes |
| WebGPU | on SwiftShader: models in f32, and features one at a time (``tests/targets/ort/webgpu_operators.py``) |
| CUDA, DirectML | no |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from graphpass.analysis.equations.kernel_features import Feature, FusedFeature

Device: TypeAlias = Literal["cpu", "cuda", "dml", "webgpu"]


@dataclass(frozen=True, slots=True)
class Provider:
    """An execution provider, and its kernels.

    Attributes:
        name: Name of the provider in ONNX Runtime.
        source: Source file of the GroupQueryAttention kernel.
        attention_types: Element types of hidden states that GroupQueryAttention supports.
        lacks: Features that GroupQueryAttention refuses or silently ignores.
        attends_to_past: Whether several new tokens can attend to a past.
        expert_types: Element types of hidden states that MoE supports; empty without a kernel. MoE is faster than all
            forms that exporters write; see `fuse-experts`.
        quantized_expert_types: Element types of hidden states for QMoE. Empty on CUDA, whose kernel requires f16 with
            f16 scales, and on WebGPU, whose kernel ignores zero points and normalizes the weights of all experts
            (``contrib_ops/webgpu/moe/qmoe.cc``): neither was tested, so quantized experts are not fused.
        experts_source: Source file of the MoE kernel.
        has_attention: Whether the provider has a kernel of ONNX's Attention.
        stores_packed: Whether com.microsoft Attention supports a past. On WebGPU it does not
            (``contrib_ops/webgpu/bert/attention.cc``), so the operator runs on the CPU.
        fuses_fixed_keys: Whether MultiHeadAttention is fused in audio encoders and cross attention. On the CPU (ONNX
            Runtime 1.32), it takes 0.9 to 1.3 times as long as its decomposed operators in an encoder of 1500
            positions, and 1.4 times as long for one query on as many keys.
        joins_sums: Whether fusing a sum and the following norm is faster.
        has_bf16: Whether the kernels support bf16.
        precision: Default type of hidden states.
    """

    name: str
    source: str
    attention_types: frozenset[str]
    lacks: frozenset[Feature] = frozenset()
    attends_to_past: bool = True
    expert_types: frozenset[str] = frozenset()
    quantized_expert_types: frozenset[str] = frozenset()
    experts_source: str = "docs/OperatorKernels.md"
    has_attention: bool = True
    stores_packed: bool = True
    fuses_fixed_keys: bool = True
    joins_sums: bool = True
    has_bf16: bool = False
    precision: Literal["f32", "f16"] = "f16"

    @property
    def fusion_options(self) -> list[str]:
        """Return the options of `fuse-group-query-attention` for this kernel."""
        lacking = [feature for feature in get_args(FusedFeature) if feature in self.lacks]
        return [f"lacks=[{','.join(lacking)}]"] if lacking else []


PROVIDERS: dict[Device, Provider] = {
    "cpu": Provider(
        "CPUExecutionProvider",
        "onnxruntime/contrib_ops/cpu/bert/group_query_attention.cc",
        frozenset({"f32", "f16"}),
        frozenset({"mixed scales"}),
        expert_types=frozenset({"f32", "f16"}),
        quantized_expert_types=frozenset({"f32", "f16"}),
        experts_source="onnxruntime/contrib_ops/cpu/moe/moe_cpu.cc",
        fuses_fixed_keys=False,
        joins_sums=False,
        precision="f32",
    ),
    "cuda": Provider(
        "CUDAExecutionProvider",
        "onnxruntime/contrib_ops/cuda/bert/group_query_attention.cc",
        frozenset({"f16", "bf16"}),
        frozenset({"padding", "mask"}),
        expert_types=frozenset({"f32", "f16", "bf16"}),
        experts_source="onnxruntime/contrib_ops/cuda/moe/moe.cc",
        has_bf16=True,
    ),
    # DirectML's kernel reads query, key, value and, for one new token, seqlens_k, and ignores all other inputs.
    "dml": Provider(
        "DmlExecutionProvider",
        "onnxruntime/core/providers/dml/DmlExecutionProvider/src/Operators/DmlOperatorGroupQueryAttention.cpp",
        frozenset({"f32", "f16"}),
        frozenset(get_args(Feature)),
        attends_to_past=False,
    ),
    # Tested with onnxruntime-ep-webgpu 0.4.0: it refuses causal=0 (mask), ignores the soft cap, and fails on integer
    # caches. Windows, sinks, biases, rotary embeddings and packed operands are correct. ONNX's Attention and MoE run on
    # the CPU provider. No shader reads the counts of new tokens.
    "webgpu": Provider(
        "WebGpuExecutionProvider",
        "onnxruntime/contrib_ops/webgpu/bert/group_query_attention.cc",
        frozenset({"f32", "f16"}),
        frozenset({"mask", "softcap", "integers", "mixed scales", "counts"}),
        has_attention=False,
        stores_packed=False,
    ),
}
