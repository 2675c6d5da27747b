"""List what execution providers of ONNX Runtime have kernels for, and what pays on them.

Sources: docs/OperatorKernels.md of ONNX Runtime (types of GroupQueryAttention by provider); the kernel of CUDA, which
refuses a bias; and what onnxruntime-genai's builder writes (0.18, ``models/builders/base.py``). Nothing but the CPU
provider was run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Device: TypeAlias = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class Provider:
    """Describes an execution provider.

    Attributes:
        name: ONNX Runtime's name for it.
        source: File of ONNX Runtime with its kernel of GroupQueryAttention.
        attention_types: Element types of hidden states that this kernel takes.
        adds_bias: Whether it adds a bias to the scores.
        joins_sums: Whether a sum and the norm after it gain in one operator.
        precision: Type of hidden states that suits it.
    """

    name: str
    source: str
    attention_types: frozenset[str]
    adds_bias: bool
    joins_sums: bool
    precision: Literal["f32", "f16"]


PROVIDERS: dict[Device, Provider] = {
    "cpu": Provider(
        "CPUExecutionProvider",
        "onnxruntime/contrib_ops/cpu/bert/group_query_attention.cc",
        frozenset({"f32", "f16"}),
        adds_bias=True,
        joins_sums=False,
        precision="f32",
    ),
    "cuda": Provider(
        "CUDAExecutionProvider",
        "onnxruntime/contrib_ops/cuda/bert/group_query_attention.cc",
        frozenset({"f16", "bf16"}),
        adds_bias=False,
        joins_sums=True,
        precision="f16",
    ),
}
