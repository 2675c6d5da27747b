"""The pass `fuse-norms`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.operators import why_too_old
from graphpass.dialects.onnx.walk import opset_of
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.constants import fold_scalar, reduced_axes
from graphpass.ir.graph import Graph, Value
from graphpass.ir.operators import CASTS
from graphpass.ir.pattern import Match, look_through, op, var
from graphpass.ir.values import fixed_size

_X, _WEIGHT, _EPSILON = var("x"), var("weight"), var("epsilon")
_MEAN = op.ReduceMean(op.Power(_X, 2.0) | op.Multiply(_X, _X), ..., name="mean")
_ROOT = op.Sqrt(op.Add(_MEAN, _EPSILON))
_INVERSE = op.Divide(1.0, _ROOT) | op.Reciprocal(_ROOT)
_NORMED = op.Multiply(_X, _INVERSE, name="normed") | op.Divide(_X, _ROOT, name="normed")

#: A root mean square norm, weighted.
_NORM = op.Multiply(_WEIGHT, look_through(_NORMED, CASTS))

#: From this version on ONNX has the norm itself.
_RMS_OPSET = 23


@dataclass(frozen=True)
class FuseNorms(Pass[OnnxModel]):
    """Replace root mean square norms by one operator of ONNX Runtime.

    ONNX Runtime finds the form with a division when it opens a model, but not the one with Reciprocal, as PyTorch
    exports it: 16 us a step of 896 elements instead of 6 (1.31, CPU). The operator is SimplifiedLayerNormalization, and
    RMSNormalization from opset 23 on. Skip forms gain nothing on the CPU. Norms in f16 that compute in f32 go on to.

    Shapes:
        x ``[.., n]``, weight ``[n]``

    Before:
        Multiply(weight, Multiply(x, Divide(1, Sqrt(Add(ReduceMean(Power(x, 2)), epsilon)))))
    After:
        SimplifiedLayerNormalization(x, weight)
    """

    name = "fuse-norms"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done | Skipped:
        opset = opset_of(model.proto)
        if (reason := why_too_old(opset)) is not None:
            return Skipped(reason)
        graph, rewriter = model.graph, model.rewriter()
        kind = "RMSNormalization" if opset >= _RMS_OPSET else "SimplifiedLayerNormalization"
        found = [(match, source) for match in _NORM.find(graph) if (source := _source(graph, match)) is not None]
        for match, source in found:
            write, x = rewriter.under(match.node.name), match["x"]
            epsilon = fold_scalar(graph, match["epsilon"])
            fused = write.outputs(
                kind, source, match["weight"], count=1, label="norm", domain="", axis=-1, epsilon=epsilon, stash_type=1
            )
            rewriter.replace(match.node.outputs[0], fused[0])
            if x != source and x.element_type == source.element_type:
                rewriter.redirect_uses(x, rewriter.native(source))
        rewriter.finish()
        return Done({"norms fused": len(found)} if found else {})


def _source(graph: Graph, match: Match) -> Value | None:
    """Return the input of the operator; ``None`` if ``match`` is another norm."""
    x, weight, result = match["x"], match["weight"], match.node.outputs[0]
    last = (x.rank or 0) - 1
    if x.rank is None or reduced_axes(graph, match.nodes["mean"]) not in {(-1,), (last,)}:
        return None
    epsilon = fold_scalar(graph, match["epsilon"])
    is_vector = weight.rank == 1 and fixed_size(weight, 0) == fixed_size(x, -1) and fixed_size(weight, 0) is not None
    if epsilon is None or epsilon <= 0 or not is_vector or weight.element_type != result.element_type:
        return None
    source = graph.look_through(x, CASTS)
    normed = match.nodes["normed"].outputs[0]
    # Other types than those of the operator's input and output are rounded in between.
    computed = {x.element_type, normed.element_type}
    if source.element_type == result.element_type and computed <= {"f32", result.element_type}:
        return source
    return x if x.element_type == result.element_type else None
