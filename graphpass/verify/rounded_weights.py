"""Prove models whose weights another tool stored in f16, as OpenVINO's `save_model` does by default.

They compute in f32, with weights that are off by up to 2^-11. The reference with the same weights rounded in the same
way has to give their logits within the tolerance of f32.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from graphpass.verify.identities import identify

if TYPE_CHECKING:
    from graphpass.ir.model import Model


def rounded_alike(reference: Model, candidate: Model) -> tuple[Model, int] | None:
    """Round those weights of ``reference`` that ``candidate`` holds in f16.

    Args:
        reference: The model that is right.
        candidate: The model in question.

    Returns:
        A copy of the reference, and the number of weights that were rounded; ``None`` if there are none.

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
        constant = reference.graph.constant(
            value, math.prod(size for size in value.shape or () if isinstance(size, int))
        )
        if constant is not None:
            rewriter.redirect_uses(value, write.constant(constant.astype(np.float16).astype(np.float32)))
            count += 1
    rewriter.finish()
    return (copy, count) if count else None
