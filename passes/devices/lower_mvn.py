"""The pass `lower-mvn`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.symbolic.folding import fold_elements
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Node
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.writer import Handle


@dataclass(frozen=True)
class LowerMvn(Pass[OpenVINOModel]):
    """Compute means and variances of MVN by separate operators in models with experts.

    NPUW computes experts in models of their own. If the norms are MVN, it fails with ``undeclared parameters``
    (2026.4.1, DBRX).

    Before:
        MVN(x, axes)
    After:
        Divide(x - mean, Sqrt(ReduceMean((x - mean)^2, axes) + eps)), where mean is ReduceMean(x, axes)
    """

    name = "lower-mvn"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        rewriter = model.rewriter()
        graph, lowered = rewriter.graph, 0
        for node in graph.of_op("MVN") if any(True for _ in graph.of_op("TopK")) else ():
            axes = _axes(graph, node)
            if axes is not None:
                rewriter.replace(node.outputs[0], _lowered(rewriter, node, axes))
                lowered += 1
        rewriter.finish()
        return Done({"MVN lowered": lowered} if lowered else {})


def _axes(graph: Graph, node: Node) -> list[int] | None:
    """Return the axes that ``node`` normalizes, ``None`` if it does so in another form."""
    attributes, axes = node.native.get_attributes(), fold_elements(graph, node.input(1))
    inside = str(attributes.get("eps_mode", "")).lower() == "inside_sqrt"
    normalizes = inside and attributes.get("normalize_variance", True)
    return [int(axis) for axis in axes.ravel()] if axes is not None and normalizes else None


def _lowered(rewriter: Rewriter, node: Node, axes: list[int]) -> Handle:
    value, write = node.source(), rewriter.under(node.name)
    mean = write.op("ReduceMean", value, axes=axes, keep=True, label="mean")
    off = write.op("Subtract", value, mean, label="off")
    variance = write.op("ReduceMean", write.op("Multiply", off, off, label="squares"), axes=axes, keep=True)
    eps = write.number(node.native.get_attributes()["eps"], value.element_type, "eps")
    return write.op("Divide", off, write.op("Sqrt", write.op("Add", variance, eps)), label="normalized")
