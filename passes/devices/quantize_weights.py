"""The pass `quantize-weights`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.dialects.onnx.four_bits import BLOCK, FourBitProduct, FourBits, four_bit_product
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewriter import OnnxRewriter
from graphpass.engine.passes import Done, Pass
from graphpass.errors import UnsupportedError
from graphpass.ir.writer import Handle
from graphpass.verify.cache_samples import loss_in_words, opened_on_ids, replayed, sample_caches, usual_prompts

#: The accuracy_level of MatMulNBits with activations in f32.
_IN_F32 = 1


@dataclass(frozen=True)
class QuantizeWeights(Pass[OnnxModel]):
    """Quantize weights of MatMul to 4 bits, in blocks of 32 inputs.

    ONNX Runtime's quantizer (`quantize_matmul_4bits`) computes scales and zero points; activations stay in f32. The
    pass runs the model on prompts and greedy steps before and after quantization, and reports the largest difference of
    logits. Embedding tables, and weights of Gemm, MoE and QMoE, are unchanged.

    Shapes:
        weight f32 or f16 ``[inputs, outputs]``, or transposed; packed u8 ``[outputs, blocks, 16]``

    Before:
        MatMul(x (f32), weight)
    After:
        MatMulNBits(x (f32), packed, scales, zero points)

    Raises:
        UnsupportedError: GP385, no MatMul in f32 has a weight; GP320 to GP325, no session can run the model.
    """

    name = "quantize-weights"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done:
        graph = model.graph
        in_f32 = [node for node in graph.of_op("MatMul") if node.outputs[0].element_type == "f32"]
        readers = [(node, four_bit_product(graph, node)) for node in in_f32]
        products = [(node, product) for node, product in readers if product is not None]
        if not products:
            reason = "no weight can be quantized to 4 bits: no MatMul in f32 has a weight"
            raise UnsupportedError("GP385", reason, "omit quantize-weights")
        session = opened_on_ids(model)
        sample = sample_caches(session, usual_prompts(session))
        del session
        rewriter = model.rewriter()
        assert isinstance(rewriter, OnnxRewriter)
        stored: dict[FourBitProduct, tuple[Handle, ...]] = {}
        for node, product in products:
            if product not in stored:
                made, name = FourBits.of(product.read(graph)), product.weight.name
                parts = (made.packed, "packed"), (made.scales, "scales"), (made.zeros, "zeros")
                stored[product] = tuple(
                    rewriter.declared(array, array.shape, f"{name}/{label}") for array, label in parts
                )
            inputs, outputs = product.sizes
            write = rewriter.under(node.name)
            rewriter.replace(
                node.outputs[0],
                write.op(
                    "MatMulNBits",
                    node.source(),
                    *stored[product],
                    domain="com.microsoft",
                    K=inputs,
                    N=outputs,
                    bits=4,
                    block_size=BLOCK,
                    accuracy_level=_IN_F32,
                ),
            )
        rewriter.finish()
        difference = loss_in_words(sample, replayed(opened_on_ids(model), sample), 4)
        left = sum(1 for _ in model.graph.of_op("Gemm"))
        notes = [f"weights of {left} Gemm stay unchanged"] if left else []
        return Done({"products": len(products), "weights": len(stored)}, (difference, *notes))
