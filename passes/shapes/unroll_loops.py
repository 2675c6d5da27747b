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
    """Write loops of few iterations as these, one after another.

    NPUs compile no loops. Where shapes are fixed, so is the number of tokens that a recurrence goes through.

    Options:
        most: The most iterations.

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
    """Return the number of iterations; ``None`` if it is not known."""
    if node.op == "Scan":
        attributes = native_attributes(node)
        axes = attributes.get("scan_input_axes") or (0,)
        return fixed_size(node.source(len(node.inputs) - int(attributes["num_scan_inputs"])), int(axes[0]))
    trips, start = (node.input(port) for port in (0, 1))
    count = None if trips is None else fold_scalar(graph, trips)
    return int(count) if count is not None and (start is None or fold_scalar(graph, start) == 1) else None
