"""The pass `flatten-norms`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.equations.norms import narrow_norms
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass


@dataclass(frozen=True)
class FlattenNorms(Pass[OnnxModel]):
    """Norm rows of few channels in one axis of rows.

    Qualcomm's HTP, emulated by onnxruntime-qnn 2.7.0, norms up to 32 channels wrongly in many sizes if rows lie along
    several axes, as those of heads do: ``[1, 2, 16, 16]`` and ``[1, 9, 4, 32]``, but not ``[1, 8, 16, 16]``. Rows along
    one axis are right (``tests/targets/qnn/test_operators.py``).

    Options:
        width: The most channels of a norm that is rewritten.

    Shapes:
        x f32 or f16 ``[.., n]`` of three axes and more, n at most ``width``; weight ``[n]``

    Before:
        SimplifiedLayerNormalization(x, weight)
    After:
        Reshape(x, [1, -1, n]) -> SimplifiedLayerNormalization(., weight) -> Reshape(., ShapeOf(x))
    """

    name = "flatten-norms"
    dialect = "onnx"

    width: int = 32

    def run(self, model: OnnxModel) -> Done:
        rewriter, count = model.rewriter(), 0
        for norm, channels in narrow_norms(rewriter.graph, self.width):
            write = rewriter.under(norm.name)
            shape = write.op("ShapeOf", norm.source(), label="shape")
            rows = write.op("Reshape", norm.source(), [1, -1, channels], label="rows")
            flat = rewriter.clone(norm, {0: rows}, f"{norm.name}/flat", axes=[-1])
            rewriter.replace(norm.outputs[0], write.op("Reshape", flat, shape, label="laid_out"))
            count += 1
        rewriter.finish()
        return Done({"norms": count} if count else {})
