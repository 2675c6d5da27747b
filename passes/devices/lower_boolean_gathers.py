"""The pass `lower-boolean-gathers`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass


@dataclass(frozen=True)
class LowerBooleanGathers(Pass[OpenVINOModel]):
    """Let GatherND look numbers up instead of booleans.

    Transformers look ``attention_mask`` up by batch and position, and torch.onnx writes that as a GatherND of booleans,
    for which GPU plugins have no kernel (``impls/ocl/gather_nd.cpp`` of openvino; observed with 2026.4.1).

    Shapes:
        any.

    Before:
        GatherND(booleans, indices)
    After:
        Convert(GatherND(Convert(booleans, i32), indices), boolean)
    """

    name = "lower-boolean-gathers"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        rewriter = model.rewriter()
        gathers = [node for node in rewriter.graph.of_op("GatherND") if node.outputs[0].element_type == "boolean"]
        for node in gathers:
            write = rewriter.under(node.name)
            numbers = write.op("Convert", node.source(), to="i32", label="numbers")
            looked_up = rewriter.clone(node, {0: numbers}, f"{node.name}/looked_up")
            rewriter.replace(node.outputs[0], write.op("Convert", looked_up, to="boolean"))
        rewriter.finish()
        return Done({"GatherND lowered": len(gathers)})
