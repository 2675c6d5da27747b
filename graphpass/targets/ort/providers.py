"""List what execution providers of ONNX Runtime have kernels for, and what pays on them.

Sources: docs/OperatorKernels.md of ONNX Runtime (types of GroupQueryAttention and MoE by provider); the kernels named
below; and what onnxruntime-genai's builder writes (0.18, ``models/builders/base.py``). Nothing but the CPU provider was
run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Device: TypeAlias = Literal["cpu", "cuda", "dml", "webgpu"]

#: Abilities of kernels of GroupQueryAttention: add a bias of padding; take a bias in place of causality; rotate query
#: and key; keep to a window; cap scores; add sinks; take query, key and value in one; keep caches in integers, with
#: scales of unlike kinds for keys and values; be told the new tokens of each row.
Feature: TypeAlias = Literal[
    "padding", "mask", "rotation", "window", "softcap", "sinks", "packing", "integers", "unlike scales", "counts"
]

_ALL: frozenset[Feature] = frozenset(get_args(Feature))


@dataclass(frozen=True, slots=True)
class Provider:
    """Describes an execution provider.

    Attributes:
        name: ONNX Runtime's name for it.
        source: File of ONNX Runtime with its kernel of GroupQueryAttention.
        attention_types: Element types of hidden states that this kernel takes.
        attention: Features of this kernel. The rest it refuses, or silently leaves out.
        attends_to_past: Whether it attends to a past from several new tokens.
        expert_types: Element types of hidden states that its kernel of MoE takes, which pays against all that exporters
            write (see `fuse-experts`); none without a kernel.
        quantized_expert_types: The same of its kernel of QMoE. That of CUDA wants f16 with scales in it, that of WebGPU
            reads no zero points and normalizes all weights of experts (``contrib_ops/webgpu/moe/qmoe.cc``); neither was
            run, so that quantized experts stay there.
        experts_source: File of ONNX Runtime with the kernel of MoE.
        joins_sums: Whether a sum and the norm after it gain in one operator.
        has_bf16: Whether its kernels compute in bf16.
        precision: Type of hidden states that suits it.
    """

    name: str
    source: str
    attention_types: frozenset[str]
    attention: frozenset[Feature] = _ALL
    attends_to_past: bool = True
    expert_types: frozenset[str] = frozenset()
    quantized_expert_types: frozenset[str] = frozenset()
    experts_source: str = "docs/OperatorKernels.md"
    joins_sums: bool = True
    has_bf16: bool = False
    precision: Literal["f32", "f16"] = "f16"


PROVIDERS: dict[Device, Provider] = {
    "cpu": Provider(
        "CPUExecutionProvider",
        "onnxruntime/contrib_ops/cpu/bert/group_query_attention.cc",
        frozenset({"f32", "f16"}),
        _ALL - {"unlike scales"},
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
        _ALL - {"padding", "mask"},
        expert_types=frozenset({"f32", "f16", "bf16"}),
        experts_source="onnxruntime/contrib_ops/cuda/moe/moe.cc",
        has_bf16=True,
    ),
    # It reads query, key, value and seqlens_k, the last for one new token alone; all else is left out.
    "dml": Provider(
        "DmlExecutionProvider",
        "onnxruntime/core/providers/dml/DmlExecutionProvider/src/Operators/DmlOperatorGroupQueryAttention.cpp",
        frozenset({"f32", "f16"}),
        frozenset(),
        attends_to_past=False,
    ),
    # It refuses causal=0, and no shader reads the soft cap or scales of caches.
    "webgpu": Provider(
        "WebGpuExecutionProvider",
        "onnxruntime/contrib_ops/webgpu/bert/group_query_attention.cc",
        frozenset({"f32", "f16"}),
        _ALL - {"mask", "softcap", "integers", "unlike scales", "counts"},
    ),
}
