"""Check the number of inputs and outputs of bodies, which ONNX's checker omits."""

from __future__ import annotations

import onnx

from graphpass.dialects.onnx.tensors import graphs
from graphpass.dialects.onnx.walk import ONNX_DOMAINS, bodies, opset_of

_NO_BODY = onnx.GraphProto()

#: The first version of Scan without a batch axis and without an input for lengths.
_SCAN_WITHOUT_BATCH = 9


def misfit_in(proto: onnx.ModelProto) -> str | None:
    """Return the first mismatch between a node and its bodies; ``None`` if there is none."""
    for graph in graphs(proto):
        for node in graph.node:
            if node.domain in ONNX_DOMAINS and (misfit := _misfit(node, opset_of(proto))) is not None:
                return f"the bodies of {node.op_type} {node.name or list(node.output)} do not match it: {misfit}"
    return None


def _misfit(node: onnx.NodeProto, opset: int) -> str | None:
    inner, outputs = bodies(node), len(node.output)
    if node.op_type == "If":
        branches = ("then_branch", "else_branch")
        return next(filter(None, (_too_few(inner.get(name, _NO_BODY), outputs) for name in branches)), None)
    if node.op_type not in {"Loop", "Scan"}:
        return None
    body, inputs = inner.get("body", _NO_BODY), len(node.input)
    if node.op_type == "Scan":
        inputs -= opset < _SCAN_WITHOUT_BATCH
        scanned = next((attribute.i for attribute in node.attribute if attribute.name == "num_scan_inputs"), 0)
        if not 0 < scanned <= inputs:
            return f"num_scan_inputs is {scanned}, of {inputs} inputs"
    if len(body.input) != inputs:
        return f"a body has {len(body.input)} inputs, expected {inputs}"
    return _too_few(body, outputs + (node.op_type == "Loop"))


def _too_few(body: onnx.GraphProto, outputs: int) -> str | None:
    count = len(body.output)
    return f"a body has {count} outputs, expected {outputs}" if count < outputs else None
