"""The pass `lower-mvn`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Node
from graphpass.ir.rewriter import Handle, Rewriter


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
        has_experts = any(True for _ in rewriter.graph.of_op("TopK"))
        norms = [node for node in rewriter.graph.of_op("MVN") if _is_known(node)] if has_experts else []
        for node in norms:
            rewriter.replace(node.outputs[0], _lowered(rewriter, node))
        rewriter.finish()
        return Done({"MVN lowered": len(norms)} if norms else {})


def _is_known(node: Node) -> bool:
    attributes = node.native.get_attributes()
    inside = str(attributes.get("eps_mode", "")).lower() == "inside_sqrt"
    return len(node.inputs) == 2 and bool(attributes.get("normalize_variance", True)) and inside


def _lowered(rewriter: Rewriter, node: Node) -> Handle:
    graph, value, write = rewriter.graph, node.source(), rewriter.under(node.name)
    axes = [int(axis) for axis in graph.constant(node.source(1)).ravel()]
    mean = write.op("ReduceMean", value, axes=axes, keep=True, label="mean")
    off = write.op("Subtract", value, mean, label="off")
    variance = write.op("ReduceMean", write.op("Multiply", off, off, label="squares"), axes=axes, keep=True)
    eps = write.number(node.native.get_attributes()["eps"], value.element_type, "eps")
    return write.op("Divide", off, write.op("Sqrt", write.op("Add", variance, eps)), label="normalized")
