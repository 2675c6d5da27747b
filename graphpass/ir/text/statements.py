"""Statements: the lines of the text form.

    %ids = Parameter : i64[batch, length]
    %table = Constant #4b1f09 : f32[32, 8]
    %rows = Gather(%table, %ids) {axis=0} : f32[batch, length, 8]  // a comment
    %sum = Add(%rows, [1.0, 2.0]:f16)
    Result(%sum) {name=logits}

Names of operators and attributes are arguments of `graphpass.ir.writer.NodeMaker.make`. Operands are values, constants
of few elements, or ``_`` if omitted. Types of computed values may be omitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy

from graphpass.ir.element_types import ELEMENT_TYPES
from graphpass.ir.types import Dimension

#: Names that need no quotes.
PLAIN = re.compile(r"[A-Za-z_/][\w./+-]*")

#: Types of constants that may be omitted, by the numpy kind of their elements.
USUAL = {"i": "i64", "u": "i64", "f": "f32", "b": "boolean"}

_BY_DTYPE = {
    element_type.dtype: element_type.name for element_type in ELEMENT_TYPES.values() if element_type.dtype is not None
}


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant operand.

    Attributes:
        values: Its elements.
        element_type: OpenVINO's short name.
    """

    values: numpy.ndarray
    element_type: str

    def __str__(self) -> str:
        usual = USUAL.get(self.values.dtype.kind)
        return _number(self.values) if self.element_type == usual else self.typed

    @property
    def typed(self) -> str:
        """Return the text with the type, the form of a tensor in an attribute."""
        return f"{_number(self.values)}:{self.element_type}"


@dataclass(frozen=True, slots=True)
class TensorType:
    """Type and shape of a value; see `graphpass.ir.graph.Value`."""

    element_type: str
    shape: tuple[Dimension, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.element_type}[...]"
        sizes = ("?" if size is None else str(size) if isinstance(size, int) else _word(size) for size in self.shape)
        return f"{self.element_type}[{', '.join(sizes)}]"


Operand: TypeAlias = "str | Literal | None"
"""Name of a value, a constant, or ``None`` for an omitted input."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: an operator with its results.

    Attributes:
        results: Names of the outputs.
        kind: The operator, as `graphpass.ir.graph.Spelling.kind`.
        operands: The operands.
        attributes: The attributes.
        types: Types of the outputs; empty if omitted.
        digest: Digest of the elements of a Constant.
        remarks: Comments on the lines before the statement.
    """

    results: tuple[str, ...]
    kind: str
    operands: tuple[Operand, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    types: tuple[TensorType, ...] = ()
    digest: str = ""
    remarks: tuple[str, ...] = ()

    def renamed(self, names: Mapping[str, str]) -> Statement:
        """Return the statement with values renamed by ``names``."""
        operands = (names[operand] if isinstance(operand, str) else operand for operand in self.operands)
        return replace(self, results=tuple(names[result] for result in self.results), operands=tuple(operands))

    def __str__(self) -> str:
        results = ", ".join(map(_value, self.results))
        parts = [f"{results} = {_word(self.kind)}" if results else _word(self.kind)]
        if self.operands:
            parts[0] += f"({', '.join(_operand(operand) for operand in self.operands)})"
        if self.digest:
            parts.append(f"#{self.digest}")
        if self.attributes:
            parts.append("{" + ", ".join(f"{name}={attribute(value)}" for name, value in self.attributes.items()) + "}")
        if self.types:
            parts.append(": " + ", ".join(map(str, self.types)))
        return "\n".join([*(f"// {remark}" for remark in self.remarks), " ".join(parts)])


def attribute(value: Any) -> str:
    """Return the text of an attribute."""
    if isinstance(value, numpy.ndarray):
        return Literal(value, _BY_DTYPE[value.dtype.name]).typed
    if isinstance(value, bool | numpy.bool_):
        return "true" if value else "false"
    if isinstance(value, float):
        return _real(numpy.float32(value) if numpy.float32(value) == value else numpy.float64(value))
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(attribute, value))}]"
    return _word(value) if isinstance(value, str) else str(value)


def _value(name: str) -> str:
    return f"%{name}" if re.fullmatch(r"[\w./+-]+", name) else f"%{_quoted(name)}"


def _operand(operand: Operand) -> str:
    if operand is None:
        return "_"
    return _value(operand) if isinstance(operand, str) else str(operand)


def _word(text: str) -> str:
    return text if PLAIN.fullmatch(text) and text not in {"true", "false", "inf", "nan"} else _quoted(text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'


def _number(values: numpy.ndarray) -> str:
    if values.ndim:
        return f"[{', '.join(map(_number, values))}]"
    if values.dtype.kind == "b":
        return "true" if values else "false"
    return _real(values.reshape(1)[0]) if values.dtype.kind == "f" else str(int(values))


def _real(value: numpy.floating[Any]) -> str:
    """Return the shortest decimal that parses to the same value."""
    return str(value.item() if isinstance(value, numpy.float64) else value)
