"""Declare initializers with the shape after a Reshape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpass.dialects.onnx.graphsurgeon import LazyWeights
    from graphpass.passes.lower.lowered_operator import LoweredOperator


def reads_reshaped_weights(operator: LoweredOperator) -> bool:
    """Return whether the operator reads an initializer through a Reshape to a known shape."""
    stored = _reshaped(operator)
    return stored is not None and math.prod(stored.shape) == math.prod(_shape(operator))


def _reshaped(operator: LoweredOperator) -> LazyWeights | None:
    reshapes = operator.read(0).inputs
    return operator.rewriter.weights(reshapes[0].inputs[0]) if reshapes and reshapes[0].op == "Reshape" else None


def _shape(operator: LoweredOperator) -> list[int]:
    """Return the shape after the Reshape, with 0 for unknown dimensions."""
    value = operator.value(0)
    return [size if isinstance(size, int) else 0 for size in value.shape or (0,)] if value is not None else [0]


def reshape_weights(operator: LoweredOperator) -> None:
    """Declare a second initializer with the bytes of a weight and another shape.

    The builder of onnxruntime-genai ties quantized embeddings to the head by a Reshape of the head's weights, and
    OpenVINO's frontend refuses a GatherBlockQuantized with computed data (2026.4.1). If the bytes are external data,
    both initializers refer to them.

    Shapes:
        weights u8 ``[vocabulary, blocks, bytes]`` as ``[vocabulary, blocks * bytes]``

    Before:
        weights -> Reshape -> GatherBlockQuantized
    After:
        weights of the new shape -> GatherBlockQuantized
    """
    stored, value = _reshaped(operator), operator.value(0)
    assert stored is not None
    assert value is not None
    operator.rewriter.replace(value, operator.rewriter.declared(stored, _shape(operator), f"{value.name}/declared"))
