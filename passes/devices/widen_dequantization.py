"""The pass `widen-dequantization`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.pattern import Match, op, var
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Value
from graphpass.ir.operators import RESHAPES

WEIGHT = op.Multiply(op.Subtract(op.Convert(var("weight")), op.Convert(var("zeros"))), var("scales"))
SYMMETRIC = op.Multiply(op.Convert(var("weight")), var("scales"))


@dataclass(frozen=True)
class WidenDequantization(Pass[OpenVINOModel]):
    """Dequantize 4-bit weights in f32 if their groups are smaller than kernels support.

    NPUW dequantizes u4 weights, and i4 weights without zero points, in f16 itself, 64 elements at once, and fails on
    groups of other sizes. It leaves dequantization in f32 to the device (2026.4.1). Integers, zero points and scales
    are unchanged.

    Options:
        multiple: The sizes of groups that are supported in f16 are multiples of this.

    Shapes:
        weight ``[rows, groups, size]`` or ``[rows, size]`` in u4 or i4, zeros and scales broadcastable to it.

    Before:
        Multiply(Convert(weight, f16) - Convert(zeros, f16), scales) -> Reshape -> Convert(f32)
    After:
        Multiply(Convert(weight, f32) - Convert(zeros, f32), Convert(scales, f32)) -> Reshape
    """

    name = "widen-dequantization"
    dialect = "openvino"

    multiple: int = 64

    def run(self, model: OpenVINOModel) -> Done:
        rewriter = model.rewriter()
        graph = rewriter.graph
        shifted = [match for match in WEIGHT.find(graph) if self._is_narrow(graph, match, "u4")]
        symmetric = [match for match in SYMMETRIC.find(graph) if self._is_narrow(graph, match, "i4")]
        for match in (*shifted, *symmetric):
            write = rewriter.under(match.node.name)
            weight, scales = (write.convert(match[name], "f32") for name in ("weight", "scales"))
            if match in shifted:
                weight = write.op("Subtract", weight, write.convert(match["zeros"], "f32"))
            rewriter.replace(match.node.outputs[0], write.op("Multiply", weight, scales))
        rewriter.finish()
        count = len(shifted) + len(symmetric)
        return Done({"weights dequantized in f32": count} if count else {})

    def _is_narrow(self, graph: Graph, match: Match, stored: str) -> bool:
        """Return whether a weight has groups of another size than kernels support, in f16."""
        weight: Value = match["weight"]
        size = weight.shape[-1] if weight.shape else None
        is_small = weight.element_type == stored and isinstance(size, int) and size % self.multiple != 0
        return is_small and _is_half(graph, match)


def _is_half(graph: Graph, match: Match) -> bool:
    """Return whether a weight is dequantized in f16, and only read in f32."""
    product = match.node.outputs[0]
    between = RESHAPES | {"Gather"}
    uses = graph.forward([product], lambda use: use.node.outputs if use.node.op in between else ())
    readers = [use.node for use in uses if use.node.op not in between]
    return product.element_type == "f16" and all(
        node.op == "Convert" and node.outputs[0].element_type == "f32" for node in readers
    )
