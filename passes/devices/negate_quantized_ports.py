"""The pass `negate-quantized-ports`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.quantizers import quantized_ports
from graphpass.ir.values import REALS


@dataclass(frozen=True)
class NegateQuantizedPorts(Pass[OnnxModel]):
    """Negate quantized inputs and dequantized outputs twice, so that they run on HTP.

    ONNX Runtime assigns a QuantizeLinear of an input and a DequantizeLinear of an output to the CPU provider; a session
    without this provider cannot be created (onnxruntime-qnn 2.7.0). Next to a floating-point operator, they run on HTP.
    ONNX Runtime's optimizer removes products with 1, sums with 0 and clips without effect, but not two negations.

    Shapes:
        x f32 or f16, of any shape

    Before:
        input -> QuantizeLinear, DequantizeLinear -> output
    After:
        input -> Negative -> Negative -> QuantizeLinear, DequantizeLinear -> Negative -> Negative -> output
    """

    name = "negate-quantized-ports"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done:
        rewriter = model.rewriter()
        counts = {"inputs": 0, "outputs": 0}
        for node, uses in tuple(quantized_ports(rewriter.graph)):
            is_input = node.op == "QuantizeLinear"
            value = node.source() if is_input else node.outputs[0]
            if value.element_type not in REALS:
                continue
            write = rewriter.under(node.name)
            same = write.op("Negative", write.op("Negative", value, label="negated"), label="same")
            for use in uses:
                rewriter.redirect(use.node, use.port, same)
            counts["inputs" if is_input else "outputs"] += 1
        rewriter.finish()
        return Done({name: count for name, count in counts.items() if count})
