"""Operators for which the installed ONNX Runtime has kernels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpass.ir.model import Model


@cache
def operators_on_cpu() -> frozenset[str]:
    """Return the operators of com.microsoft for which the CPU provider has kernels."""
    from onnxruntime.capi import onnxruntime_pybind11_state as registry

    kernels = registry.get_all_opkernel_def()
    return frozenset(kernel.op_name for kernel in kernels if kernel.domain == "com.microsoft")


def without_kernel(model: Model) -> Iterator[str]:
    """Yield the operators of com.microsoft in ``model`` without a kernel of the CPU provider.

    In ONNX Runtime 1.32 none of them has a function body of operators with kernels.
    """
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.dialects.onnx.tensors import graphs

    assert isinstance(model, OnnxModel)
    nodes = (node for graph in graphs(model.proto) for node in graph.node if node.domain == "com.microsoft")
    yield from sorted({node.op_type for node in nodes} - operators_on_cpu())
