"""The pass `fuse-gelu`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.pattern import op, var

_X = var("x")
_SQUARE = op.Multiply(_X, _X) | op.Power(_X, 2.0)
_CUBE = op.Power(_X, 3.0) | op.Multiply(_X, _SQUARE)
_CUBIC = op.Add(_X, op.Multiply(_CUBE, 0.044715)) | op.Multiply(_X, op.Add(op.Multiply(_SQUARE, 0.044715), 1.0))
_GATE = op.Add(op.Tanh(op.Multiply(_CUBIC, math.sqrt(2 / math.pi))), 1.0)

#: GELU by its approximation with tanh.
_GELU = (
    op.Multiply(op.Multiply(_X, _GATE), 0.5)
    | op.Multiply(op.Multiply(_X, 0.5), _GATE)
    | op.Multiply(_X, op.Multiply(_GATE, 0.5))
)


@dataclass(frozen=True)
class FuseGelu(Pass[OnnxModel]):
    """Replace GELU by tanh with one operator of ONNX Runtime.

    ONNX Runtime finds the form with a power when it opens a model, but not the one that multiplies three times, as
    optimum exports gemma: 1.7 ms for 512 x 4864 numbers instead of 57 (1.31, CPU). Activations in f32 alone are fused.

    Shapes:
        x of any shape

    Before:
        x * (1 + Tanh(0.79788 * (x + 0.044715 * (x * x * x)))) * 0.5
    After:
        FastGelu(x)
    """

    name = "fuse-gelu"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done:
        rewriter = model.rewriter()
        found = [match for match in _GELU.find(model.graph) if match["x"].element_type == "f32"]
        for match in found:
            write = rewriter.under(match.node.name)
            fused = write.outputs("FastGelu", match["x"], count=1, label="gelu", domain="com.microsoft")
            rewriter.replace(match.node.outputs[0], fused[0])
        rewriter.finish()
        return Done({"activations fused": len(found)} if found else {})
