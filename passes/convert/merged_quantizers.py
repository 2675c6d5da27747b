"""Merge quantizers of ONNX, as OpenVINO's frontend reads them, to operators in f32."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from graphpass.analysis.pattern import Match, op, var
from graphpass.analysis.rules import RewriteRule, rewrite
from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.values import INTEGERS

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph
    from graphpass.ir.model import Model
    from graphpass.ir.writer import Handle, Writer

#: Bounds of the integers, zero point and scale.
_SCALARS = ("first", "last", "zero", "scale")

_ROUNDED = op.FakeQuantize(*map(var, ("x", "low", "high", "first", "last")), name="rounded")

_PATTERN = op.Multiply(op.Subtract(op.Convert(op.Convert(_ROUNDED, name="whole")), var("zero")), var("scale"))


def merge_quantizers(model: Model) -> None:
    """Replace each FakeQuantize to integers and its dequantization by one FakeQuantize.

    OpenVINO's frontend reads QuantizeLinear as a FakeQuantize to whole numbers. Its plugins merge both as well
    (``ConvertQuantizeDequantize``); analyses of attention and caches read one operator.

    Args:
        model: An OpenVINO model; edited in place.
    """
    rewriter = model.rewriter()
    rewrite(rewriter, [RewriteRule("quantizers merged", _PATTERN, partial(_merged, rewriter.graph), _is_mergeable)])
    rewriter.finish()


def _is_mergeable(graph: Graph, match: Match) -> bool:
    """Return whether the integers are read once, and have one scale and zero point."""
    whole = match.nodes["whole"].outputs[0]
    has_scalars = all(fold_scalar(graph, match[name]) is not None for name in _SCALARS)
    return has_scalars and len(graph.uses(whole)) == 1 and whole.element_type in INTEGERS


def _merged(graph: Graph, write: Writer, match: Match) -> Handle:
    first, last, zero, scale = (fold_scalar(graph, match[name]) or 0.0 for name in _SCALARS)
    rounded = match.nodes["rounded"]
    ends = [write.number((end - zero) * scale, match["x"].element_type, "end") for end in (first, last)]
    operands = (match["x"], match["low"], match["high"], *ends)
    return write.op("FakeQuantize", *operands, levels=native_attributes(rounded)["levels"], label="rounded")
