"""Read the text form of a graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy

from graphpass.errors import UsageError
from graphpass.ir.element_types import ELEMENT_TYPES
from graphpass.ir.text.statements import PLAIN, USUAL, Literal, Operand, Statement, TensorType
from graphpass.ir.types import Dimension

_TOKENS = re.compile(
    r"""(?P<space>\s+|//.*)"""
    r"""|(?P<value>%(?:[\w./+-]+|"(?:[^"\\]|\\.)*"))"""
    r"""|(?P<text>"(?:[^"\\]|\\.)*")"""
    r"""|(?P<number>-?(?:inf\b|nan\b|\d+(?:\.\d*)?(?:e[+-]?\d+)?))"""
    r"""|(?P<digest>\#\w+)"""
    rf"""|(?P<word>{PLAIN.pattern})"""
    r"""|(?P<sign>\.\.\.|[=(){}\[\],:?])"""
)

Item = TypeVar("Item")


def parse_text(text: str) -> tuple[Statement, ...]:
    """Read the text of a graph.

    Returns:
        The statements in order of the lines, without empty lines.

    Raises:
        UsageError: GP270, a line is not a statement; the message has its number.
    """
    statements = []
    for number, line in enumerate(text.splitlines(), 1):
        reader = _Reader(line, number)
        if reader.more:
            statements.append(reader.statement())
    return tuple(statements)


class _Reader:
    def __init__(self, line: str, number: int) -> None:
        self._line, self._number = line, number
        self._tokens = list(self._split())

    @property
    def more(self) -> bool:
        return bool(self._tokens)

    def _split(self) -> Iterator[tuple[str, str]]:
        start = 0
        while start < len(self._line):
            match = _TOKENS.match(self._line, start)
            if match is None:
                raise self._error(f"unexpected character {self._line[start]!r}")
            start = match.end()
            if match.lastgroup != "space":
                yield str(match.lastgroup), match[0]

    def _error(self, reason: str) -> UsageError:
        hint = "write %result = Operator(%operand, 1.0) {attribute=value} : f32[batch, 4]"
        return UsageError("GP270", f"line {self._number} of the graph, {self._line.strip()!r}: {reason}", hint)

    def _next(self, *kinds: str) -> str:
        kind, text = self._tokens[0] if self._tokens else ("end", "the end")
        if kind not in kinds and text not in kinds:
            raise self._error(f"expected {' or '.join(kinds)}, got {text}")
        del self._tokens[0]
        if kind == "text" or text.startswith('%"'):
            return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], text.lstrip("%")[1:-1])
        return text.lstrip("%") if kind == "value" else text

    def _accept(self, text: str) -> bool:
        is_next = self.more and self._tokens[0][1] == text
        if is_next:
            del self._tokens[0]
        return is_next

    def _listed(self, end: str, read: Callable[[], Item]) -> list[Item]:
        items: list[Item] = []
        while not self._accept(end):
            if items:
                self._next(",")
            items.append(read())
        return items

    def statement(self) -> Statement:
        results: list[str] = []
        while self._tokens[0][0] == "value":
            results.append(self._next("value"))
            if not self._accept(","):
                self._next("=")
                break
        kind = self._next("word", "text")
        operands = self._listed(")", self._operand) if self._accept("(") else []
        digest = self._next("digest")[1:] if self.more and self._tokens[0][0] == "digest" else ""
        attributes = dict(self._listed("}", self._attribute)) if self._accept("{") else {}
        types: list[TensorType] = []
        while self._accept("," if types else ":"):
            types.append(self._type())
        if self.more:
            raise self._error(f"expected the end, got {self._tokens[0][1]}")
        return Statement(tuple(results), kind, tuple(operands), attributes, tuple(types), digest)

    def _operand(self) -> Operand:
        if self._accept("_"):
            return None
        if self.more and self._tokens[0][0] == "value":
            return self._next("value")
        return self._literal()

    def _literal(self) -> Literal:
        values = numpy.array(self._numbers())
        element_type = "i64" if values.size == 0 else USUAL[values.dtype.kind]
        return self._typed(values, self._next("word") if self._accept(":") else element_type)

    def _typed(self, values: numpy.ndarray, element_type: str) -> Literal:
        if element_type not in ELEMENT_TYPES:
            raise self._error(f"{element_type} is not an element type")
        return Literal(values.astype(ELEMENT_TYPES[element_type].dtype or "float32"), element_type)

    def _numbers(self) -> Any:
        if self._accept("["):
            return self._listed("]", self._numbers)
        return _number(self._next("number", "true", "false"))

    def _attribute(self) -> tuple[str, Any]:
        name = self._next("word", "text")
        self._next("=")
        content = self._content()
        return name, self._typed(numpy.array(content), self._next("word")) if self._accept(":") else content

    def _content(self) -> Any:
        if self._accept("["):
            return self._listed("]", self._content)
        is_number = self.more and (self._tokens[0][0] == "number" or self._tokens[0][1] in {"true", "false"})
        text = self._next("number", "word", "text")
        return _number(text) if is_number else text

    def _type(self) -> TensorType:
        element_type = self._next("word")
        self._next("[")
        if self._accept("..."):
            self._next("]")
            return TensorType(element_type, None)
        return TensorType(element_type, tuple(self._listed("]", self._dimension)))

    def _dimension(self) -> Dimension:
        if self._accept("?"):
            return None
        text = self._next("number", "word", "text")
        return int(text) if text.isdecimal() else text


def _number(text: str) -> float | bool:
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
