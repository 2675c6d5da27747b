"""The pass `promote-to-f32`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.model import Model


@dataclass(frozen=True)
class PromoteToF32(Pass[Model]):
    """Promote computations in f16 or bf16 to f32; stored weights stay.

    For OpenVINO, optimum exports f16 models in that form: each plugin lowers the precision itself, and keeps the
    weights compressed. openvino.genai reads logits of f32 only, and caches of f16 do not run on the CPU plugin if their
    attention is not fused.
    Weights get a Convert that is marked as OpenVINO's decompression; constants of up to 16 elements become f32, which
    is exact. Quantized weights with scales of f16 are left as they are (Convert, Subtract, Multiply), and a Convert
    follows, as NNCF writes it.

    For ONNX a Cast follows the weights. ONNX Runtime (1.32) has no products in bf16 on the CPU, and casts around each
    operator that it has in f32 alone; Casts of weights it computes once, when it opens the model, so that they take the
    memory of f32.

    Shapes:
        any; inputs, outputs, variables, and the bodies of If, Loop and TensorIterator, keep theirs and their names.

    Before:
        x (f16) -> MatMul(., weight (Constant f16)) -> Convert(f32) -> Softmax -> Convert(f16) -> y (f16)
    After:
        x (f32) -> MatMul(., Convert(weight (Constant f16), f32)) -> Softmax -> y (f32)

    Raises:
        UnsupportedError: GP327, an operator gives f16 or bf16 whatever its inputs are.
    """

    name = "promote-to-f32"

    def run(self, model: Model) -> Done:
        if isinstance(model, OnnxModel):
            from graphpass.dialects.onnx.precision import promote as promote_onnx

            return Done(promote_onnx(model))
        from graphpass.dialects.openvino.model import OpenVINOModel
        from graphpass.dialects.openvino.precision import promote

        assert isinstance(model, OpenVINOModel)
        if counts := promote(model.ov_model):
            model.mark_edited()
        return Done(counts)
