"""Prove models whose products read weights in 4 bits that `quantize-weights` rounded.

Rounding moves logits by more than a fault does. The reference with the same weights rounded in the same way has to give
the candidate's logits within the usual tolerance. A weight counts as rounded if each of its outputs has, in blocks, the
numbers of an output of the candidate: projections may have been joined before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from graphpass.ir.model import Model


def rounded_to_four_bits(reference: Model, candidate: Model) -> tuple[Model, int] | None:
    """Round those weights of ``reference`` that ``candidate`` holds in 4 bits.

    Args:
        reference: The model that is right.
        candidate: The model in question.

    Returns:
        A copy of the reference, and the number of weights that were rounded; ``None`` if there are none.
    """
    from graphpass.dialects.onnx.four_bits import FourBits, four_bit_product, packed_weights
    from graphpass.dialects.onnx.precision import in_f32, is_in_f16

    outputs = {row.tobytes() for packed in packed_weights(candidate.graph) for row in packed}
    if not outputs or reference.dialect != "onnx":
        return None
    # Rounded weights need more digits than f16 has.
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
