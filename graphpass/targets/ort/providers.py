"""List what execution providers of ONNX Runtime have kernels for, and what pays on them.

Sources: docs/OperatorKernels.md of ONNX Runtime (types of GroupQueryAttention and MoE by provider); the kernels named
below; and what onnxruntime-genai's builder writes (0.18, ``models/builders/base.py``). The CPU provider was run. WebGPU
was run on SwiftShader: models in f32 (docs/devices.md), and features of GroupQueryAttention one by one
(``tests/targets/ort/webgpu_operators.py``). CUDA and DirectML were not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from graphpass.analysis.equations.kernel_features import Feature, FusedFeature

Device: TypeAlias = Literal["cpu", "cuda", "dml", "webgpu"]


@dataclass(frozen=True, slots=True)
class Provider:
    """Describes an execution provider.

    Attributes:
        name: ONNX Runtime's name for it.
        source: File of ONNX Runtime with its kernel of GroupQueryAttention.
        attention_types: Element types of hidden states that this kernel takes.
        lacks: Features that this kernel refuses, or silently leaves out.
        attends_to_past: Whether it attends to a past from several new tokens.
        expert_types: Element types of hidden states that its kernel of MoE takes, which pays against all that exporters
            write (see `fuse-experts`); none without a kernel.
        quantized_expert_types: The same of its kernel of QMoE. That of CUDA requires f16 with scales in it, that of
            WebGPU reads no zero points and normalizes all weights of experts (``contrib_ops/webgpu/moe/qmoe.cc``);
            neither was run, so that quantized experts stay there.
        experts_source: File of ONNX Runtime with the kernel of MoE.
        has_attention: Whether it has a kernel of ONNX's Attention.
        joins_sums: Whether a sum and the norm after it gain in one operator.
        has_bf16: Whether its kernels compute in bf16.
        precision: Type of hidden states that suits it.
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
    # It reads query, key, value and seqlens_k, the last for one new token alone; all else is left out.
    "dml": Provider(
        "DmlExecutionProvider",
        "onnxruntime/core/providers/dml/DmlExecutionProvider/src/Operators/DmlOperatorGroupQueryAttention.cpp",
        frozenset({"f32", "f16"}),
        frozenset(get_args(Feature)),
        attends_to_past=False,
    ),
    # When it was run (onnxruntime-ep-webgpu 0.4.0), it refused causal=0 (mask), left out the soft cap, failed on caches
    # in integers, and computed windows, sinks, biases, rotations and packed operands rightly. ONNX's Attention and MoE
    # ran on the CPU provider. Counts of new tokens are an input that no shader reads.
    "webgpu": Provider(
        "WebGpuExecutionProvider",
        "onnxruntime/contrib_ops/webgpu/bert/group_query_attention.cc",
        frozenset({"f32", "f16"}),
        frozenset({"mask", "softcap", "integers", "mixed scales", "counts"}),
        has_attention=False,
    ),
}
