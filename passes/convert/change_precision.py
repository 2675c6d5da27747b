"""The pass `change-precision`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass
from graphpass.errors import PreconditionError
from graphpass.ir.model import Model


@dataclass(frozen=True)
class ChangePrecision(Pass[Model]):
    """Compute hidden states in f16, bf16 or f32.

    **To f16 and bf16** (ONNX alone), weights and caches change with the hidden states. In f32 stay angles, masks and
    biases, which are rounded once they are computed; softmax with the scores that it reads; decomposed norms with
    their reductions; states of recurrences; operators without a kernel in that type; and all that the model itself
    converts to f32. Fused norms and attention sum in f32 inside. Biases are cut to the range of f16 first, so that rows
    that are masked whole stay finite. Casts stand at these borders, one for each tensor. Past and present keys, values
    and windows of columns change; other inputs and outputs, logits among them, keep their type. Each weight is read and
    rounded once, a piece at a time, and equal ones are stored once; those of data files go to a new one.

    bf16 is the type of most checkpoints, so that weights that were bf16 before the export keep their numbers. It has
    the range of f32 and 8 bits of precision, 3 fewer than f16: hidden states and caches are rounded 8 times as
    coarsely. CUDA alone computes in it (docs/OperatorKernels.md of ONNX Runtime). ONNX Runtime's CPU provider has no
    products in bf16, so that sessions and proofs of graphpass compute such models in f32.

    **To f32**, computations change and stored weights stay. For OpenVINO, optimum exports f16 models in that form: each
    plugin lowers the precision itself, and keeps the weights compressed. openvino.genai reads logits of f32 only, and
    caches of f16 do not run on the CPU plugin if their attention is not fused. Weights get a Convert that is marked as
    OpenVINO's decompression; constants of up to 16 elements become f32, which is exact. Quantized weights with scales
    of f16 are left unchanged (Convert, Subtract, Multiply), and a Convert follows, as NNCF writes it.
    For ONNX a Cast follows the weights. ONNX Runtime (1.32) computes Casts of weights once, when it opens the model, so
    that they take the memory of f32. Inputs, outputs, variables, and the bodies of If, Loop and TensorIterator change.

    Options:
        to: The type.
        cross: For f16 and bf16: change caches of cross attention as well, those that a decoder reads and those that an
            encoder fills: both parts need the same setting.

    Shapes:
        any; all keep theirs and their names

    Before:
        MatMul(x (f32), weight (f32)) -> Softmax -> y (f32)
    After:
        MatMul(x (f16), weight (f16)) -> Convert(f32) -> Softmax -> Convert(f16) -> y (f16)

    Before:
        x (f16) -> MatMul(., weight (Constant f16)) -> Convert(f32) -> Softmax -> Convert(f16) -> y (f16)
    After:
        x (f32) -> MatMul(., Convert(weight (Constant f16), f32)) -> Softmax -> y (f32)

    Raises:
        PreconditionError: GP301, f16 or bf16 for a model in OpenVINO IR.
        ReadError: GP105, a weight's data is missing.
        UnsupportedError: GP327, an operator gives f16 or bf16 whatever its inputs are, so that no f32 follows; GP340,
            f16 or bf16 for a model of an opset before 13; GP398, a number of a weight is beyond the type.
        WriteError: GP501, the folder of temporary files has no room for the weights.
    """

    name = "change-precision"

    to: Literal["f16", "bf16", "f32"] = "f32"
    cross: bool = False

    def __post_init__(self) -> None:
        """Check that the options fit."""
        if self.cross and self.to == "f32":
            raise ValueError("cross needs to=f16 or to=bf16")

    def run(self, model: Model) -> Done:
        if isinstance(model, OnnxModel):
            if self.to == "f32":
                from graphpass.dialects.onnx.precision import promote as promote_onnx

                return Done(promote_onnx(model))
            from graphpass.passes.convert.demotion import demote

            return demote(model, self.to, cross=self.cross)
        if self.to != "f32":
            hint = "use OpenVINO's runtime option INFERENCE_PRECISION_HINT, or run the pass before to-openvino"
            raise PreconditionError("GP301", f"to={self.to} requires ONNX, got OpenVINO IR", hint)
        from graphpass.dialects.openvino.model import OpenVINOModel
        from graphpass.dialects.openvino.precision import promote

        assert isinstance(model, OpenVINOModel)
        if counts := promote(model.ov_model):
            model.mark_edited()
        return Done(counts)
