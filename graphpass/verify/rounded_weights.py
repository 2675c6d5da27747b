"""Verify models with rounded weights, by `quantize-weights` or OpenVINO's `save_model` in f16.

Rounding changes logits by more than a fault may: the relative error of weights in f16 is up to 2^-11. So the weights of
the reference are rounded in the same way, and its logits compared within the usual tolerance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphpass.ir.values import known_elements
from graphpass.verify.identities import identify

if TYPE_CHECKING:
    from graphpass.ir.model import Model


def rounded_to_four_bits(reference: Model, candidate: Model) -> tuple[Model, int] | None:
    """Round those weights of ``reference`` that ``candidate`` has in 4 bits.

    A weight is rounded if each of its output channels equals, after quantization, an output channel of a weight of
    the candidate: projections may have been joined before quantization.

    Args:
        reference: The reference model.
        candidate: The candidate model.

    Returns:
        A copy of the reference, and the number of rounded weights; ``None`` if no weight is rounded.
    """
    from graphpass.dialects.onnx.four_bits import FourBits, four_bit_product, packed_weights
    from graphpass.dialects.onnx.precision import in_f32, is_in_f16

    outputs = {row.tobytes() for packed in packed_weights(candidate.graph) for row in packed}
    if not outputs or reference.dialect != "onnx":
        return None
    # Dequantized weights are not exact in f16.
    copy = (reference if candidate.analysis(is_in_f16) else reference.analysis(in_f32)).clone()
    rewriter, count = copy.rewriter(), 0
    for node in list(copy.graph.of_op("MatMul")):
        made = (
            None if (product := four_bit_product(copy.graph, node)) is None else FourBits.of(product.read(copy.graph))
        )
        if made is not None and all(row.tobytes() in outputs for row in made.packed):
            wide = made.widened().astype(np.float16 if node.source().element_type == "f16" else np.float32)
            rewriter.redirect(node, 1, rewriter.under(node.name).constant(wide, "rounded"))
            count += 1
    rewriter.finish()
    return (copy, count) if count else None


def rounded_to_f16(reference: Model, candidate: Model) -> tuple[Model, int] | None:
    """Round those weights of the reference that the candidate has in f16.

    Args:
        reference: The reference model; weights in other types than f32 are kept.
        candidate: The candidate model, whose weights in f16 are found by content.

    Returns:
        As `rounded_to_four_bits`.

    Raises:
        ReadError: GP105, GP110 and GP111, weights cannot be read.
    """
    if not any(node.outputs[0].element_type == "f16" for node in candidate.graph.of_op("Constant")):
        return None
    contents = identify(reference, candidate)
    halves = {
        contents[1][node.index]
        for node in candidate.graph.of_op("Constant")
        if node.outputs[0].element_type == "f16" and node.index in contents[1]
    }
    copy = reference.clone()
    rewriter = copy.rewriter()
    write, count = rewriter.under("rounded"), 0
    for node in reference.graph.of_op("Constant"):
        value = node.outputs[0]
        if value.element_type != "f32" or contents[0].get(node.index) not in halves:
            continue
        constant = reference.graph.constant(value, known_elements(value))
        if constant is not None:
            rewriter.redirect_uses(value, write.constant(constant.astype(np.float16).astype(np.float32)))
            count += 1
    rewriter.finish()
    return (copy, count) if count else None
