"""The table of element types."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ElementType:
    """One element type.

    Attributes:
        name: OpenVINO's short name; ONNX's name if OpenVINO lacks the type.
        code: Value in ``onnx.TensorProto.DataType``.
        bits: Bits of an element; 64 for strings.
        dtype: Name of the numpy type; ``None`` if numpy lacks the type.
    """

    name: str
    code: int
    bits: int
    dtype: str | None = None


#: All element types by name.
ELEMENT_TYPES: dict[str, ElementType] = {
    element_type.name: element_type
    for element_type in (
        ElementType("f32", 1, 32, "float32"),
        ElementType("u8", 2, 8, "uint8"),
        ElementType("i8", 3, 8, "int8"),
        ElementType("u16", 4, 16, "uint16"),
        ElementType("i16", 5, 16, "int16"),
        ElementType("i32", 6, 32, "int32"),
        ElementType("i64", 7, 64, "int64"),
        ElementType("string", 8, 64),
        ElementType("boolean", 9, 8, "bool"),
        ElementType("f16", 10, 16, "float16"),
        ElementType("f64", 11, 64, "float64"),
        ElementType("u32", 12, 32, "uint32"),
        ElementType("u64", 13, 64, "uint64"),
        ElementType("complex64", 14, 64),
        ElementType("complex128", 15, 128),
        ElementType("bf16", 16, 16),
        ElementType("f8e4m3", 17, 8),
        ElementType("float8e4m3fnuz", 18, 8),
        ElementType("f8e5m2", 19, 8),
        ElementType("float8e5m2fnuz", 20, 8),
        ElementType("u4", 21, 4),
        ElementType("i4", 22, 4),
        ElementType("f4e2m1", 23, 4),
        ElementType("f8e8m0", 24, 8),
        ElementType("u2", 25, 2),
        ElementType("i2", 26, 2),
        ElementType("float6e2m3", 27, 6),
        ElementType("float6e3m2", 28, 6),
    )
}


def element_bytes(name: str) -> float:
    """Return the bytes of one element; 0 for an unknown type."""
    return ELEMENT_TYPES[name].bits / 8 if name in ELEMENT_TYPES else 0
