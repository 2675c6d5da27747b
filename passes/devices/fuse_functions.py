"""The pass `fuse-functions`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from graphpass.analysis.pattern import Match, look_through, op, var
from graphpass.analysis.rules import RewriteRule, rewrite
from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.walk import opset_of
from graphpass.engine.conditions import OPSET_13
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Value
from graphpass.ir.miss import Miss
from graphpass.ir.operators import CASTS
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size
from graphpass.ir.writer import Handle, Writer

_X, _WEIGHT, _EPSILON = var("x"), var("weight"), var("epsilon")
_SQUARE = op.Multiply(_X, _X) | op.Power(_X, 2.0)
_CUBE = op.Power(_X, 3.0) | op.Multiply(_X, _SQUARE)
_CUBIC = op.Add(_X, op.Multiply(_CUBE, 0.044715)) | op.Multiply(_X, op.Add(op.Multiply(_SQUARE, 0.044715), 1.0))
_GATE = op.Add(op.Tanh(op.Multiply(_CUBIC, math.sqrt(2 / math.pi))), 1.0)

#: The tanh approximation of GELU.
_GELU = (
    op.Multiply(op.Multiply(_X, _GATE), 0.5)
    | op.Multiply(op.Multiply(_X, 0.5), _GATE)
    | op.Multiply(_X, op.Multiply(_GATE, 0.5))
)

_ROOT = op.Sqrt(op.Add(op.ReduceMean(_SQUARE, ..., name="mean"), _EPSILON))
_INVERSE = op.Divide(1.0, _ROOT) | op.Reciprocal(_ROOT)
_NORMED = op.Multiply(_X, _INVERSE, name="normed") | op.Divide(_X, _ROOT, name="normed")

#: A root mean square norm, weighted.
_NORM = op.Multiply(_WEIGHT, look_through(_NORMED, CASTS))

#: The difference from the mean, which a layer norm divides.
_CENTERED = op.Subtract(var("y"), op.ReduceMean(var("y"), ..., name="mean"))

#: The first opsets with LayerNormalization and RMSNormalization.
_LAYER_OPSET, _RMS_OPSET = 17, 23


@dataclass(frozen=True)
class FuseFunctions(Pass[OnnxModel]):
    """Fuse norms and the tanh approximation of GELU to operators of ONNX Runtime.

    ONNX Runtime fuses norms with a Div, but not PyTorch's exports with a Reciprocal: a decomposed norm of 896 elements
    takes 16 us instead of 6 us (1.31, CPU). The fused operator is SimplifiedLayerNormalization, or RMSNormalization
    from opset 23 on; from opset 17 on, a norm of differences from the mean becomes LayerNormalization. Norms of f16
    tensors that compute in f32 still compute in f32.

    ONNX Runtime fuses GELU with a Pow, but not with three multiplications, as in optimum's exports of gemma. The fused
    operator takes 1.7 ms for 512 x 4864 elements instead of 57 ms (1.31, CPU). Only activations in f32 are fused.

    Options:
        activations: Whether to fuse GELU.

    Shapes:
        norms: x ``[.., n]``, weight ``[n]``; GELU: x of any shape

    Before:
        Multiply(weight, Multiply(x, Divide(1, Sqrt(Add(ReduceMean(Power(x, 2)), epsilon)))))
    After:
        SimplifiedLayerNormalization(x, weight)

    Before:
        Multiply(weight, Divide(d, Sqrt(Add(ReduceMean(Power(d, 2)), epsilon)))) + bias, where d = x - ReduceMean(x)
    After:
        LayerNormalization(x, weight, bias)

    Before:
        x * (1 + Tanh(0.79788 * (x + 0.044715 * (x * x * x)))) * 0.5
    After:
        FastGelu(x)
    """

    name = "fuse-functions"
    dialect = "onnx"
    only_for = (OPSET_13,)

    activations: bool = True

    def run(self, model: OnnxModel) -> Done:
        opset = opset_of(model.proto)
        rewriter = model.rewriter()
        counts = rewrite(rewriter, (_norm_rule(rewriter, opset), *((_GELU_RULE,) if self.activations else ())))
        rewriter.finish()
        return Done(counts)


def _gelu(write: Writer, match: Match) -> Handle:
    return write.outputs("FastGelu", match["x"], count=1, label="gelu", domain="com.microsoft")[0]


_GELU_RULE = RewriteRule("activations fused", _GELU, _gelu, lambda _graph, match: match["x"].element_type == "f32")


def _norm_rule(rewriter: Rewriter, opset: int) -> RewriteRule:
    graph = rewriter.graph
    kind = "RMSNormalization" if opset >= _RMS_OPSET else "SimplifiedLayerNormalization"

    def build(write: Writer, match: Match) -> Handle:
        x, source, epsilon = match["x"], _source(graph, match), fold_scalar(graph, match["epsilon"])
        assert source is not None
        attributes = {"domain": "", "axis": -1, "epsilon": epsilon, "stash_type": 1}
        centered = _centered(graph, match) if opset >= _LAYER_OPSET else None
        if centered is not None:
            return _layer_norm(rewriter, write, match, centered, attributes)
        (fused,) = write.outputs(kind, source, match["weight"], count=1, label="norm", **attributes)
        if x != source and x.element_type == source.element_type:
            rewriter.redirect_uses(x, rewriter.native(source))
        return fused

    return RewriteRule("norms fused", _NORM, build, lambda graph, match: _source(graph, match) is not None)


def _centered(graph: Graph, match: Match) -> Value | None:
    """Return the tensor from which the norm's input subtracts the mean; ``None`` for other inputs."""
    x, result = match["x"], match.node.outputs[0]
    found = _CENTERED.match(graph, x)
    if isinstance(found, Miss) or not _is_along_last(found, found["y"]):
        return None
    return found["y"] if found["y"].element_type == x.element_type == result.element_type else None


def _layer_norm(rewriter: Rewriter, write: Writer, match: Match, source: Value, attributes: dict[str, Any]) -> Handle:
    """Return a LayerNormalization, which includes the bias that the only user adds."""
    uses, weight = rewriter.graph.uses(match.node.outputs[0]), match["weight"]
    added = uses[0].node if len(uses) == 1 and uses[0].node.op == "Add" else None
    bias = None if added is None else added.source(1 - uses[0].port)
    if bias is not None and (bias.shape, bias.element_type) != (weight.shape, weight.element_type):
        bias = None
    operands = [source, weight, *([] if bias is None else [bias])]
    (fused,) = write.outputs("LayerNormalization", *operands, count=1, label="norm", **attributes)
    if added is not None and bias is not None:
        rewriter.replace(added.outputs[0], fused)
    return fused


def _is_along_last(match: Match, value: Value) -> bool:
    """Return whether a match computes the mean along the last axis, and keeps it."""
    mean, rank = match.nodes["mean"], value.rank
    return rank is not None and mean.attributes.get("axes") == (rank - 1,) and mean.outputs[0].rank == rank


def _source(graph: Graph, match: Match) -> Value | None:
    """Return the input of the fused norm; ``None`` if it cannot express ``match``."""
    x, weight, result = match["x"], match["weight"], match.node.outputs[0]
    if not _is_along_last(match, x):
        return None
    epsilon = fold_scalar(graph, match["epsilon"])
    is_vector = weight.rank == 1 and fixed_size(weight, 0) == fixed_size(x, -1) and fixed_size(weight, 0) is not None
    if epsilon is None or epsilon <= 0 or not is_vector or weight.element_type != result.element_type:
        return None
    source = graph.look_through(x, CASTS)
    normed = match.nodes["normed"].outputs[0]
    # Intermediate values of other types are rounded, which the fused operator does not do.
    computed = {x.element_type, normed.element_type}
    if source.element_type == result.element_type and computed <= {"f32", result.element_type}:
        return source
    return x if x.element_type == result.element_type else None
