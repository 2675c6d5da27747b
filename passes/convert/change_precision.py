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

    To f16 and bf16 (ONNX only), the pass converts hidden states, weights, and past and present keys, values and
    convolution windows. Other inputs and outputs, such as logits, keep their type. These computations stay in f32:

    - angles, masks and biases, which are rounded after they are computed
    - softmax, and the scores that it reads
    - decomposed norms with their reductions
    - states of recurrences
    - operators without a kernel in the type
    - values that the source model itself converts to f32

    Fused norms and attention accumulate in f32. Biases are clipped to the range of f16, so that queries masked for all
    keys have finite results. At the borders between types, the pass writes one Cast per tensor. Each weight is read and
    rounded once, in blocks, and equal weights are stored once; weights of data files are written to a new data file.

    bf16 is the type of most checkpoints: weights that were bf16 before the export are represented exactly. bf16 has the
    range of f32 and 8 bits of precision, 3 fewer than f16, so that hidden states and caches are rounded 8 times as
    coarsely. Only the CUDA provider computes in bf16 (docs/OperatorKernels.md of ONNX Runtime). The CPU provider has no
    MatMul in bf16: sessions and proofs of graphpass compute such models in f32.

    To f32, the pass converts computations, inputs, outputs, variables, and the bodies of If, Loop and
    TensorIterator; stored weights are unchanged.

    - OpenVINO IR: optimum exports f16 models in this form. Each plugin lowers the precision itself, and keeps weights
      compressed. openvino.genai reads only f32 logits, and the CPU plugin does not run f16 caches without fused
      attention. A Convert marked as OpenVINO's decompression follows each weight; constants of up to 16 elements
      become f32, which is exact. Quantized weights with f16 scales are unchanged (Convert, Subtract, Multiply), and a
      Convert follows, as NNCF writes it.
    - ONNX: a Cast follows each weight. ONNX Runtime (1.32) folds these Casts when it loads the model, so that weights
      take the memory of f32.

    Options:
        to: The type.
        cross: For f16 and bf16, also convert caches of cross attention, which an encoder computes and a decoder reads.
            Both parts require the same setting.

    Shapes:
        any; shapes and names are unchanged

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
        UnsupportedError: GP327, the result of an operator is f16 or bf16 for f32 inputs as well; GP340, f16 or bf16 for
            a model of an opset before 13; GP398, an element of a weight is outside of the range of the type.
        WriteError: GP501, the folder of temporary files has no space for the weights.
    """

    name = "change-precision"

    to: Literal["f16", "bf16", "f32"] = "f32"
    cross: bool = False

    def __post_init__(self) -> None:
        """Check that ``cross`` is supported by ``to``.

        Raises:
            ValueError: ``to`` is f32, which does not support ``cross``.
        """
        if self.cross and self.to == "f32":
            raise ValueError("cross requires to=f16 or to=bf16")

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
