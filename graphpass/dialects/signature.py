"""Signatures of operators: equal signatures imply equal computations."""

from __future__ import annotations

import hashlib

import onnx

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.digest import loop_digest
from graphpass.dialects.openvino.names import bodies
from graphpass.ir.graph import Node
from graphpass.ir.model import Model

_BODIES = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def signature(node: Node) -> str | None:
    """Return a hash of the kind and the attributes of an operator.

    The hash includes the body of a loop, and excludes names of nodes and of a variable. It is ``None`` for other
    operators with bodies.
    """
    native = node.native
    if isinstance(native, onnx.NodeProto):
        if any(attribute.type in _BODIES for attribute in native.attribute):
            return None
        attributes = sorted(attribute.SerializeToString(deterministic=True) for attribute in native.attribute)
        return _hash(native.domain, native.op_type, attributes)
    if bodies(native):
        return loop_digest(native) if native.get_type_name() in {"Loop", "TensorIterator"} else None
    kind = native.get_type_info()
    attributes = sorted((key, str(value)) for key, value in native.get_attributes().items() if key != "variable_id")
    return _hash(kind.version_id, kind.name, attributes)


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def meaning(node: Node, model: Model) -> tuple[str, int] | None:
    """Return `signature` and the version of the operator; ``None`` for operators with bodies.

    Args:
        node: The operator.
        model: Its model, which imports the operator set; the version is 0 in OpenVINO.
    """
    known = signature(node)
    if known is None or not isinstance(model, OnnxModel):
        return None if known is None else (known, 0)
    native = node.native
    opset = next((imported.version for imported in model.proto.opset_import if imported.domain == native.domain), 1)
    try:
        return known, onnx.defs.get_schema(native.op_type, opset, native.domain).since_version
    except onnx.defs.SchemaError:
        return known, opset
