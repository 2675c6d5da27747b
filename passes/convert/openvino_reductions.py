"""Write reductions in the form that OpenVINO's CPU plugin computes right."""

from __future__ import annotations

from graphpass.ir.constants import reduced_axes
from graphpass.ir.graph import Graph, Node
from graphpass.ir.model import Model
from graphpass.ir.operators import REDUCTIONS
from graphpass.ir.values import REALS

__all__ = ["keep_reduced_axes"]


def keep_reduced_axes(model: Model) -> None:
    """Let reductions of ``[batch, channels, n]`` to ``[batch, channels]`` keep the last axis, and squeeze it.

    The CPU plugin fuses a reduction with a sum or product by channel that follows, and takes the number of one channel
    for all if there is more than one row: measured on 2026.4.1, on the bias of a convolution that was exported
    as a sum of products. (openvino issue 23616 is the same with one row, mended in
    ``src/plugins/intel_cpu/src/nodes/reduce.cpp`` by pull request 23970.) Nothing is fused over a Squeeze.
    """
    rewriter = model.rewriter()
    for node in rewriter.graph.of_op(*REDUCTIONS):
        if _is_by_channel(rewriter.graph, node):
            write = rewriter.under(node.name)
            kept = write.op(node.op, *node.inputs, keep=True, label="kept")
            rewriter.replace(node.outputs[0], write.op("Squeeze", kept, axes=[2]))
    rewriter.finish()


def _is_by_channel(graph: Graph, node: Node) -> bool:
    ranks = (node.source().rank, node.outputs[0].rank)
    return ranks == (3, 2) and node.outputs[0].element_type in REALS and reduced_axes(graph, node) in {(2,), (-1,)}
