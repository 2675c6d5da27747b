"""The pass `reshape-states`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.written_products import written_products
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Value
from graphpass.ir.rewriter import Handle


@dataclass(frozen=True)
class ReshapeStates(Pass[OpenVINOModel]):
    """Write states back through a Reshape where NPUW would take them for logits.

    NPUW cuts the product of the logits off, for which it looks at all Results, those that it makes of each Assign
    included (``cut_lm_head.cpp``). If it cuts a state's product off instead, it fails with ``unregistered_parameters``.

    Before:
        MatMul -> Transpose -> Assign
    After:
        MatMul -> Transpose -> Reshape(., [0, 0, 0, 0]) -> Assign
    """

    name = "reshape-states"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        rewriter = model.rewriter()
        made: dict[Value, Handle] = {}
        for assign in written_products(rewriter.graph):
            value = assign.source()
            if value.rank is None:
                continue
            if value not in made:
                write = rewriter.under(f"{rewriter.graph.producer(value).name}/state")
                same = write.constant([0] * value.rank)
                made[value] = write.op("Reshape", value, same, special_zero=True)
            rewriter.redirect(assign, 0, made[value])
        rewriter.finish()
        return Done({"states": len(made)} if made else {})
