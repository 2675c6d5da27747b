"""Operators of ONNX models."""

from __future__ import annotations

from collections import Counter
from typing import Any


def count_operators(model: Any) -> Counter[str]:
    """Count the nodes of an ONNX model by operator."""
    return Counter(node.op_type for node in model.proto.graph.node)
