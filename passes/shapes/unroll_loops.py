"""The pass `unroll-loops`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.dialects.attributes import native_attributes
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Node
from graphpass.ir.values import fixed_size


@dataclass(frozen=True)
class UnrollLoops(Pass[OnnxModel]):
    """Unroll loops with few iterations.

    Compilers for NPUs do not support loops. In a static model, the number of iterations over tokens is constant.

    Options:
        most: The largest number of iterations to unroll.

    Before:
        Loop(2, true, state) { state -> update -> state }
    After:
        state -> update -> update
    """

    name = "unroll-loops"
    dialect = "onnx"

    most: int = 64

    def run(self, model: OnnxModel) -> Done:
        from graphpass.dialects.onnx.unrolling import unroll

        rewriter, count = model.rewriter(), 0
        for node in rewriter.graph.of_op("Loop", "Scan"):
            iterations = _iterations(rewriter.graph, node)
            if iterations is not None and 0 < iterations <= self.most:
                count += unroll(rewriter, node, iterations)
        rewriter.finish()
        return Done({"loops": count} if count else {})


def _iterations(graph: Graph, node: Node) -> int | None:
    """Return the number of iterations; ``None`` if unknown."""
    if node.op == "Scan":
        attributes = native_attributes(node)
        axes = attributes.get("scan_input_axes") or (0,)
        return fixed_size(node.source(len(node.inputs) - int(attributes["num_scan_inputs"])), int(axes[0]))
    trips, start = (node.input(port) for port in (0, 1))
    count = None if trips is None else fold_scalar(graph, trips)
    return int(count) if count is not None and (start is None or fold_scalar(graph, start) == 1) else None
