"""Attributes of operators by their native names."""

from __future__ import annotations

from typing import Any

from graphpass.ir.graph import Node


def text_of(content: bytes) -> str:
    """Return the text of an attribute; bytes that are not UTF-8 are replaced."""
    return content.decode(errors="replace")


def native_attributes(node: Node) -> dict[str, Any]:
    """Return the attributes of an operator by their native names.

    Strings have type `str`. Attributes with bodies are omitted.
    """
    native = node.native
    if hasattr(native, "get_attributes"):
        return dict(native.get_attributes())
    import onnx

    with_bodies = {onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS}
    attributes = {
        attribute.name: onnx.helper.get_attribute_value(attribute)
        for attribute in native.attribute
        if attribute.type not in with_bodies
    }
    return {name: text_of(value) if isinstance(value, bytes) else value for name, value in attributes.items()}
