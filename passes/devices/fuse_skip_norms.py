"""The pass `fuse-skip-norms`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.symbolic.sizes import Sizes, infer_sizes
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.conditions import OPSET_13
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Node, Value
from graphpass.ir.values import fixed_size

#: ONNX Runtime's operator for an Add and a norm, by the norm. The fourth output is the sum.
_JOINED = {
    "SimplifiedLayerNormalization": "SkipSimplifiedLayerNormalization",
    "LayerNormalization": "SkipLayerNormalization",
}


@dataclass(frozen=True)
class FuseSkipNorms(Pass[OnnxModel]):
    """Fuse a residual Add and the norm after it to one operator of ONNX Runtime.

    With the fused operator, GPUs read and write the hidden states once less. On the CPU provider it is slower: 1008 us
    for 512 rows of 896 elements, compared with 661 us for Add and norm (1.31). Target `ort` runs the pass only for
    other devices. CUDA and DirectML have kernels (docs/OperatorKernels.md of ONNX Runtime); the builder of
    onnxruntime-genai writes the same operator.

    Shapes:
        x, y f32 or f16 ``[.., n]`` of two or three axes; weight, bias ``[n]``

    Before:
        sum = Add(x, y); SimplifiedLayerNormalization(sum, weight)
    After:
        norm, sum = SkipSimplifiedLayerNormalization(x, y, weight)

    Before:
        sum = Add(x, y); LayerNormalization(sum, weight, bias)
    After:
        norm, sum = SkipLayerNormalization(x, y, weight, bias)
    """

    name = "fuse-skip-norms"
    dialect = "onnx"
    only_for = (OPSET_13,)

    def run(self, model: OnnxModel) -> Done:
        graph, sizes, rewriter = model.graph, model.analysis(infer_sizes), model.rewriter()
        joined: set[Value] = set()
        for norm in graph.of_op(*_JOINED):
            total = norm.source()
            added = graph.producer(total)
            if total in joined or any(graph.uses(output) for output in norm.outputs[1:]):
                continue
            if not _is_joined(sizes, added, norm):
                continue
            write = rewriter.under(norm.name)
            inputs = (*added.inputs, *norm.inputs[1:])
            epsilon = norm.attributes.get("epsilon", 1e-5)
            made = write.outputs(
                _JOINED[norm.op], *inputs, count=4, label="skip", domain="com.microsoft", epsilon=epsilon
            )
            rewriter.replace(norm.outputs[0], made[0])
            rewriter.replace(total, made[3])
            joined.add(total)
        rewriter.finish()
        return Done({"sums joined": len(joined)} if joined else {})


def _is_joined(sizes: Sizes, added: Node, norm: Node) -> bool:
    total = norm.source()
    if added.op != "Add" or total.rank not in {2, 3} or total.element_type not in {"f32", "f16"}:
        return False
    shapes = [None if value is None else sizes.shape(value) for value in added.inputs]
    weights = [value for value in norm.inputs[1:] if value is not None]
    width = fixed_size(total, -1)
    return (
        shapes[0] is not None
        and shapes[0] == shapes[1]
        and width is not None
        and all(value.rank == 1 and fixed_size(value, 0) == width for value in weights)
        and all(value.element_type == total.element_type for value in (*weights, norm.outputs[0]))
        and norm.attributes.get("axis", -1) in {-1, total.rank - 1}
    )
