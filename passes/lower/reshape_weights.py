"""Declare weights in the shape in which they are read, instead of reshaping them."""

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
    """Return the shape that is read; no size is 0 unless it is unknown."""
    value = operator.value(0)
    return [size if isinstance(size, int) else 0 for size in value.shape or (0,)] if value is not None else [0]


def reshape_weights(operator: LoweredOperator) -> None:
    """Declare the bytes of a weight a second time.

    The builder of onnxruntime-genai ties quantized embeddings to the head by a Reshape of its weights, and OpenVINO's
    frontend refuses a GatherBlockQuantized whose data is computed (2026.4.1). If the bytes lie in a file of external
    data, both declarations refer to them there.

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
