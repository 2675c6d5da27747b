"""Find the tensor in which the heads of attention are merged."""

from __future__ import annotations

from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.ir.graph import Value


def merged_heads(model: OnnxModel, value: Value, width: int) -> Value | None:
    """Return the result of ``Reshape(Transpose(value))`` if neither input has other users.

    Args:
        model: The model.
        value: ``[batch, heads, length, size]``.
        width: Size of the last axis, ``heads * size``.

    Returns:
        ``[batch, length, width]``.
    """
    for op in ("Transpose", "Reshape"):
        uses = model.graph.uses(value)
        if len(uses) != 1 or uses[0].node.op != op or uses[0].port:
            return None
        if op == "Transpose" and uses[0].node.attributes.get("order") != (0, 2, 1, 3):
            return None
        value = uses[0].node.outputs[0]
    shape = model.analysis(infer_sizes).shape(value) or ()
    return value if len(shape) == 3 and shape[2].as_number == width else None
