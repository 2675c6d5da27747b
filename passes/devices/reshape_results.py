"""The pass `reshape-results`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.logits_cut import crosses_logits_cut
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Value
from graphpass.ir.writer import Handle


@dataclass(frozen=True)
class ReshapeResults(Pass[OpenVINOModel]):
    """Insert a Reshape before Results at which NPUW's cut of the logits fails.

    NPUW moves the MatMul of the logits to a model of its own. It searches all Results for this MatMul, including those
    into which it converts each Assign (``cut_lm_head.cpp``). It fails with ``undeclared parameters`` if it cuts another
    MatMul, and with ``NO_LINK``, or a crash, if another output reads the input of the MatMul of the logits.

    Before:
        MatMul -> Transpose -> Assign
    After:
        MatMul -> Transpose -> Reshape(., [0, 0, 0, 0]) -> Assign
    """

    name = "reshape-results"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        rewriter = model.rewriter()
        made: dict[Value, Handle] = {}
        for result in crosses_logits_cut(rewriter.graph):
            value = result.source()
            if value.rank is None:
                continue
            if value not in made:
                write = rewriter.under(f"{rewriter.graph.producer(value).name}/result")
                same = write.constant([0] * value.rank)
                made[value] = write.op("Reshape", value, same, special_zero=True)
            rewriter.redirect(result, 0, made[value])
        rewriter.finish()
        return Done({"results reshaped": len(made)} if made else {})
