"""Write slices of a shape of a cache as Gathers."""

from __future__ import annotations

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.symbolic.folding import fold_cuts
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.operators import SLICES


def gather_sizes(model: OpenVINOModel) -> int:
    """Replace slices of one size of a past by Gathers; return their number.

    OpenVINO's paged attention replaces the past's length by that of its own cache where a Gather reads it
    (prev_sequence_length_pattern.cpp); after any other operator the variable stays, and with it ``beam_idx``.
    """
    graph, rewriter, count = model.graph, model.rewriter(), 0
    pasts = [graph.reads[cache.read].outputs[0] for cache in analyze_caches(model).of_kind("kv")]
    asked = graph.forward(pasts, lambda use: use.node.outputs if use.node.op in {"Gather", "ShapeOf"} else ())
    for node in [
        use.node for use in asked if use.node.op in SLICES and graph.producer(use.node.source()).op == "ShapeOf"
    ]:
        cuts = fold_cuts(graph, node)
        if len(cuts) == 1 and cuts[0].step == 1 and node.outputs[0].shape == (1,):
            made = rewriter.under(node.name).op("Gather", node.source(), [cuts[0].start], axis=0)
            rewriter.replace(node.outputs[0], made)
            count += 1
    rewriter.finish()
    return count
