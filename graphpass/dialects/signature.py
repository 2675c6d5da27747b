"""Sign operators: equal signatures mean equal computations."""

from __future__ import annotations

import hashlib
from typing import Any

import onnx

from graphpass.dialects.openvino.names import bodies
from graphpass.ir.graph import Node

_BODIES = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def signature(node: Node) -> str | None:
    """Hash the kind and all attributes of an operator; return ``None`` if it has bodies.

    Names of nodes, and of a variable, do not count.
    """
    native = node.native
    if isinstance(native, onnx.NodeProto):
        if any(attribute.type in _BODIES for attribute in native.attribute):
            return None
        attributes = sorted(attribute.SerializeToString(deterministic=True) for attribute in native.attribute)
        return _hash(native.domain, native.op_type, attributes)
    if bodies(native):
        return None
    kind = native.get_type_info()
    attributes = sorted((key, str(value)) for key, value in native.get_attributes().items() if key != "variable_id")
    return _hash(kind.version_id, kind.name, attributes)


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def native_attributes(node: Node) -> dict[str, Any]:
    """Return the attributes of an operator by its dialect's own names; text as `str`."""
    native = node.native
    if not isinstance(native, onnx.NodeProto):
        return dict(native.get_attributes())
    given = {one.name: onnx.helper.get_attribute_value(one) for one in native.attribute if one.type not in _BODIES}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}
