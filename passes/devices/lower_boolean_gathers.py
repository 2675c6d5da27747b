"""The pass `lower-boolean-gathers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import named
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.types import Dialect
from graphpass.targets.gpu.rules import boolean_gathers

__all__ = ["LowerBooleanGathers"]


@dataclass(frozen=True)
class LowerBooleanGathers(Pass[OpenVINOModel]):
    """Look numbers up instead of booleans, where a GatherND does.

    Transformers look ``attention_mask`` up by batch and position, and torch.onnx writes that as a GatherND of booleans,
    for which GPU plugins have no kernel (``impls/ocl/gather_nd.cpp`` of openvino; observed with 2026.4.1).

    Shapes:
        any.

    Before:
        GatherND(booleans, indices)
    After:
        Convert(GatherND(Convert(booleans, i32), indices), boolean)
    """

    name: ClassVar[str] = "lower-boolean-gathers"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        from openvino import opset13

        found = boolean_gathers(model.graph)
        for node in found:
            gather, readers = node.native, node.native.output(0).get_target_inputs()
            numbers = named(opset13.convert(gather.input_value(0), "i32"), f"{node.name}/numbers")
            gather.input(0).replace_source_output(numbers.output(0))
            booleans = named(opset13.convert(gather, "boolean"), f"{node.name}/booleans")
            for reader in readers:
                reader.replace_source_output(booleans.output(0))
        if not found:
            return Unchanged()
        model.ov_model.validate_nodes_and_infer_types()
        return Changed(model, {"GatherND lowered": len(found)})
