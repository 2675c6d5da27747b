"""ONNX's own operators, and in which version of them a model is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["ONNX_DOMAINS", "opset_of"]

#: What files call the domain of ONNX's own operators.
ONNX_DOMAINS = frozenset({"", "ai.onnx"})


def opset_of(proto: onnx.ModelProto) -> int:
    """The version of ONNX's own operators that ``proto`` is written in; 0 where it names none."""
    return next((entry.version for entry in proto.opset_import if entry.domain in ONNX_DOMAINS), 0)
