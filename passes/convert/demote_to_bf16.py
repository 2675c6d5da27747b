"""The pass `demote-to-bf16`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.passes.convert.demotion import Demotion


@dataclass(frozen=True)
class DemoteToBf16(Demotion):
    """Compute hidden states in bf16, and keep weights and caches in it.

    As `demote-to-f16`, in the type of the checkpoints that most models come from: weights that were bf16 before they
    were exported keep their numbers. It has the range of f32 and 8 bits of precision, 3 fewer than f16, so that hidden
    states and caches are rounded 8 times as coarsely. CUDA alone computes in it; operators without a kernel for it
    there stay in f32, with casts around them (docs/OperatorKernels.md of ONNX Runtime).

    ONNX Runtime's CPU provider has no products in bf16, so that sessions and proofs of graphpass compute such models
    in f32, with weights as they are stored.

    Options:
        cross: Let caches of cross attention be bf16 as well, those that a decoder reads and those that an encoder
            fills: both have to be demoted so.

    Shapes:
        any

    Before:
        MatMul(x (f32), weight (f32)) -> Softmax -> y (f32)
    After:
        MatMul(x (bf16), weight (bf16)) -> Cast(f32) -> Softmax -> Cast(bf16) -> y (bf16)

    Raises:
        ReadError: GP105, a weight's data is missing.
        UnsupportedError: GP340, the model is of an opset before 13; GP398, a number of a weight is beyond bf16.
        WriteError: GP501, the folder of temporary files has no room for the weights.
    """

    name = "demote-to-bf16"
    half = "bf16"
