"""Damages files of models: bytes, lines and attributes of XML, fields of protobuf."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

import onnx

__all__ = ["MUTATIONS", "damaged_bytes"]

_ATTRIBUTE = re.compile(rb'="([^"]*)"')

_TEXTS = (
    *(b"", b"-1", b"0", b"1", b"2", b"1000000", b"99999999999", b"9223372036854775807", b"18446744073709551616"),
    *(b"?", b"1,1,1", b"9223372036854775807,2", b"4294967296,4294967296"),
    *(b"f32", b"i4", b"u1", b"string", b"Parameter", b"Const", b"ReadValue", b"If", b"opset99", b"x" * 3000),
)
_NUMBERS = (-1, 0, 1, 2, 3, 7, 10**6, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
_NAMES = ("", "x", "-1", "input_ids", "present.0.key", "If", "Loop", "Constant", "Concat", "Reshape", "\u00e9" * 50)


def damaged_bytes(content: bytes, random: Random) -> bytes:
    """Bits flipped, bytes replaced, taken out and put in."""
    data = bytearray(content)
    for _ in range(random.choice([1, 1, 3, 20])):
        place, how = random.randrange(len(data) + 1), random.randrange(4)
        if how == 0 and place < len(data):
            data[place] ^= 1 << random.randrange(8)
        elif how == 1 and place < len(data):
            data[place] = random.randrange(256)
        elif how == 2:
            del data[place : place + random.choice([1, 4, 100])]
        else:
            data[place:place] = bytes(random.randrange(256) for _ in range(random.choice([1, 4, 30])))
    return bytes(data)


def _cut(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content))]


def _attributes(content: bytes, random: Random) -> bytes:
    for _ in range(random.choice([1, 1, 2, 5])):
        found = list(_ATTRIBUTE.finditer(content))
        place = random.choice(found)
        text = random.choice([random.choice(_TEXTS), random.choice(found)[1]])
        content = content[: place.start(1)] + text + content[place.end(1) :]
    return content


def _lines(content: bytes, random: Random) -> bytes:
    lines = content.split(b"\n")
    for _ in range(random.choice([1, 2])):
        one, other, how = random.randrange(len(lines)), random.randrange(len(lines)), random.randrange(3)
        if how == 0:
            del lines[one]
        elif how == 1:
            lines.insert(other, lines[one])
        else:
            lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def _fields(content: bytes, random: Random) -> bytes:
    proto = onnx.ModelProto()
    proto.ParseFromString(content)
    for _ in range(random.choice([1, 1, 2, 4])):
        message = random.choice(_messages(proto))
        _change(message, random.choice(list(message.DESCRIPTOR.fields)), random)
    return bytes(proto.SerializeToString())


def _messages(proto: Any) -> list[Any]:
    found = [proto]
    for message in found:
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                found.extend([value] if hasattr(value, "ListFields") else value)
    return found


def _change(message: Any, field: Any, random: Random) -> None:
    held = getattr(message, field.name)
    if random.randrange(3) == 0:
        message.ClearField(field.name)
    elif hasattr(held, "ListFields"):
        held.SetInParent()
    elif field.type == field.TYPE_MESSAGE:
        if held and random.randrange(2):
            del held[random.randrange(len(held))]
        else:
            held.add().CopyFrom(random.choice([type(held.add())(), *held]))
    elif hasattr(held, "append"):
        if held and random.randrange(2):
            held[random.randrange(len(held))] = _value(field, random)
        else:
            held.append(_value(field, random))
    else:
        setattr(message, field.name, _value(field, random))


def _value(field: Any, random: Random) -> Any:
    number = random.choice(_NUMBERS)
    if field.cpp_type == field.CPPTYPE_ENUM:  # protobuf keeps others than those out of some
        return random.choice(sorted(field.enum_type.values_by_number))
    if field.cpp_type == field.CPPTYPE_INT32:
        return max(-(2**31), min(number, 2**31 - 1))
    if field.cpp_type in {field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE}:
        return random.choice([0.0, -1e30, float("nan"), float("inf")])
    if field.cpp_type == field.CPPTYPE_STRING:
        bytes_ = (b"", bytes(3), b"\xff" * 7, b"x" * 2000)
        return random.choice(bytes_) if field.type == field.TYPE_BYTES else random.choice(_NAMES)
    return number if field.cpp_type == field.CPPTYPE_INT64 else abs(number)


#: How to damage a file, by its suffix.
MUTATIONS: dict[str, tuple[Callable[[bytes, Random], bytes], ...]] = {
    ".xml": (_attributes, _lines, damaged_bytes, _cut),
    ".onnx": (_fields, _fields, damaged_bytes, _cut),
}
