"""Lower QMoE."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from graphpass.dialects.packed_bits import packed, unpacked
from graphpass.passes.lower.mixture_of_experts import Experts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.dialects.onnx.graphsurgeon import LazyWeights
    from graphpass.ir.writer import Handle
    from graphpass.passes.lower.lowered_operator import LoweredOperator
    from graphpass.passes.lower.mixture_of_experts import Product


#: Ports of weights, scales, bias and zero points of the three products.
_PRODUCTS = ((2, 3, 4, 11), (5, 6, 7, 12), (8, 9, 10, 13))
_ROUTER_WEIGHTS = 14

#: The first opset with blocks in DequantizeLinear.
_BLOCKS = 21


def lower_quantized_mixture_of_experts(operator: LoweredOperator) -> None:
    """Lower com.microsoft QMoE to DequantizeLinear and batched products over all experts.

    OpenVINO's frontend has no rule for the operator (2026.4.1). Weights are not copied, but declared as ``[experts,
    outputs, inputs]`` of 4 or 8 bits. Products and router are lowered as in `lower_mixture_of_experts`.

    Shapes:
        weights u8 ``[experts, outputs, inputs * bits / 8]``, scales ``[experts, outputs]`` or ``[experts, outputs,
        inputs / block_size]``, zero points as scales, packed.

    Before:
        QMoE(input, router_probs, fc1_experts_weights, fc1_scales, ..)
    After:
        MatMul(., DequantizeLinear(fc1_experts_weights, fc1_scales, zero points)), ..

    Raises:
        UnsupportedError: GP341, weights that are not initializers of 4 or 8 bits; routing weights from an input, or not
            normalized; an opset before 21.
    """
    kind, opset = operator.attribute("quant_type", "int"), operator.rewriter.opset
    if kind != "int":
        raise operator.refusal(f"its quant_type is {kind}")
    if not operator.attribute("normalize_routing_weights", 0):
        # ONNX Runtime's CPU kernel (1.31) normalizes routing weights in any case.
        raise operator.refusal("its routing weights are not normalized, which runtimes compute differently")
    if opset < _BLOCKS:
        raise operator.refusal(f"the model has opset {opset}, and DequantizeLinear supports blocks from {_BLOCKS} on")
    if operator.attribute("weights_prepacked", 0) == 1:
        raise operator.refusal("its weights are packed for one device")
    if any(operator.read(port) is not None for port in range(_ROUTER_WEIGHTS, len(operator.native.inputs))):
        raise operator.refusal("it has inputs after the zero points: routing weights or further scales")
    products = [_product(operator, number) for number in range(len(_PRODUCTS))]
    first = _stored(operator, _PRODUCTS[0][0])
    hidden = first.shape[2] * 8 // _bits(operator, 0)
    scales = operator.rewriter.type_of(operator.read(_PRODUCTS[0][1]))
    Experts(operator, products, first.shape[0], hidden, scales).write_all()


def _product(operator: LoweredOperator, number: int) -> Product | None:
    weights, scales, bias, zeros = _PRODUCTS[number]
    if operator.read(weights) is None:
        return None
    bits = _bits(operator, number)
    if bits not in {4, 8}:
        raise operator.refusal(f"its weights have {bits} bits")
    key = *(operator.read(port).name for port in (weights, scales)), operator.value(zeros), bits
    return operator.once(key, lambda: _dequantized(operator, weights, scales, zeros, bits)), operator.read(bias)


def _bits(operator: LoweredOperator, number: int) -> int:
    bits: int = operator.attribute(f"fc{number + 1}_expert_weight_bits", operator.attribute("expert_weight_bits", 4))
    return bits


def _dequantized(operator: LoweredOperator, weights: int, scales: int, zeros: int, bits: int) -> Handle:
    weight, scale, declared = _stored(operator, weights), _stored(operator, scales), operator.rewriter.declared
    name = operator.read(weights).name
    experts, outputs, inputs = weight.shape[0], weight.shape[1], weight.shape[2] * 8 // bits
    block = operator.attribute("block_size", 0)
    shape = [experts, outputs, inputs // (block or inputs)]
    if operator.read(zeros) is None:
        points = numpy.full(shape, 1 << (bits - 1), numpy.uint8)
    else:
        points = _unpacked(_stored(operator, zeros), shape, shape[2] if block else outputs, bits)
    return operator.write.op(
        "DequantizeLinear",
        declared(weight, [experts, outputs, inputs], f"{name}/u{bits}", f"u{bits}"),
        declared(scale, shape, f"{operator.read(scales).name}/blocks"),
        declared(packed(points.ravel(), bits), shape, f"{name}/zero_points", f"u{bits}"),
        axis=2,
        block_size=block or inputs,
    )


def _stored(operator: LoweredOperator, port: int) -> LazyWeights:
    tensor = operator.read(port)
    stored = None if tensor is None else operator.rewriter.weights(tensor)
    if stored is None:
        raise operator.refusal(
            f"input {port} is {tensor.name if tensor is not None else 'omitted'}, not an initializer"
        )
    return stored


def _unpacked(stored: LazyWeights, shape: list[int], length: int, bits: int) -> NDArray[numpy.uint8]:
    """Return zero points as u8; in the model, each row is packed to whole bytes."""
    return unpacked(stored.load().view(numpy.uint8), bits)[..., :length].reshape(shape)
