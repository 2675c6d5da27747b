"""Syntax of pipelines: ``a,b{x=1,y=[true,none]},c{name="quoted, text"}``.

Whitespace between tokens is ignored. A word is a sequence of characters other than whitespace, quotes, ``,``, ``=``,
braces and brackets. Quoted text has the syntax of JSON strings.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NoReturn, TypeAlias, TypeVar

from graphpass.errors import UsageError

Item = TypeVar("Item")

Place: TypeAlias = Callable[[str], str]
"""Adds the position of a token to a message."""


@dataclass(frozen=True, slots=True)
class OptionValue:
    """The value of an option as written.

    Attributes:
        kind: A bare word, a quoted string or a list.
        text: The word, the text between the quotes, or the text of the list.
        items: Elements of a list.
        place: Adds the position of the value to a message.
    """

    kind: Literal["word", "string", "list"]
    text: str
    items: tuple[OptionValue, ...] = ()
    place: Place = field(default=str, compare=False)


@dataclass(frozen=True, slots=True)
class Setting:
    """One ``option=value``."""

    name: str
    value: OptionValue
    place: Place = field(default=str, compare=False)


@dataclass(frozen=True, slots=True)
class PassCall:
    """One pass with its settings."""

    name: str
    settings: tuple[Setting, ...] = ()
    place: Place = field(default=str, compare=False)


_TOKEN = re.compile(r'(?P<word>[^\s,{}\[\]="]+)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<mark>[,{}\[\]=])', re.DOTALL)
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:+-]+")


def quote(text: str) -> str:
    """Return ``text`` as a bare word if possible, otherwise quoted."""
    return text if _PLAIN_WORD.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def parse_steps(text: str) -> tuple[PassCall, ...]:
    """Parse the syntax of a pipeline; empty text has no steps.

    Args:
        text: The whole pipeline.

    Returns:
        The passes as written; names and values are not checked.

    Raises:
        UsageError: GP210, with the column and a caret below it.
    """
    return _Parser(text).pipeline()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._scan())
        self._next = 0

    def _scan(self) -> list[_Token]:
        tokens: list[_Token] = []
        position = 0
        while position < len(self._text):
            if self._text[position].isspace():
                position += 1
                continue
            match = _TOKEN.match(self._text, position)
            if match is None:
                self._fail(_Token("string", "", position, position + 1), "missing closing quote")
            tokens.append(_Token(str(match.lastgroup), match[0], match.start(), match.end()))
            position = match.end()
        end = len(self._text.rstrip())
        return [*tokens, _Token("end", "", end, end + 1)]

    def pipeline(self) -> tuple[PassCall, ...]:
        if self._peek().kind == "end":
            return ()
        steps = self._listed(self._step)
        if self._peek().kind != "end":
            self._fail(
                self._peek(), "expected ',' or '{' after a pass name" if not steps[-1].settings else "expected ','"
            )
        return tuple(steps)

    def _listed(self, item: Callable[[], Item]) -> list[Item]:
        items = [item()]
        while self._take_mark(","):
            items.append(item())
        return items

    def _step(self) -> PassCall:
        name = self._word("the name of a pass")
        settings: list[Setting] = []
        if self._take_mark("{") and not self._take_mark("}"):
            settings = self._listed(self._setting)
            if not self._take_mark("}"):
                self._fail(self._peek(), f"expected ',' or '}}' in the options of {name.text}")
        return PassCall(name.text, tuple(settings), self._place(name))

    def _setting(self) -> Setting:
        name = self._word("the name of an option")
        if not self._take_mark("="):
            self._fail(self._peek(), f"expected '=' and a value after option {name.text}")
        return Setting(name.text, self._value(), self._place(name))

    def _value(self) -> OptionValue:
        token = self._peek()
        if token.kind == "word":
            self._next += 1
            return OptionValue("word", token.text, place=self._place(token))
        if token.kind == "string":
            self._next += 1
            try:
                return OptionValue("string", json.loads(token.text, strict=False), place=self._place(token))
            except ValueError:
                self._fail(token, "invalid escape in quotes: double the backslash, or use an escape of JSON")
        if not self._take_mark("["):
            self._fail(token, "expected a value")
        items: list[OptionValue] = []
        if not self._take_mark("]"):
            items = self._listed(self._value)
            if not self._take_mark("]"):
                self._fail(self._peek(), "expected ',' or ']' in a list")
        end = self._tokens[self._next - 1].end
        whole = _Token("list", self._text[token.start : end], token.start, end)
        return OptionValue("list", whole.text, tuple(items), self._place(whole))

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take_mark(self, mark: str) -> bool:
        token = self._peek()
        is_mark = token.kind == "mark" and token.text == mark
        self._next += is_mark
        return is_mark

    def _word(self, what: str) -> _Token:
        token = self._peek()
        if token.kind != "word":
            self._fail(token, f"expected {what}")
        self._next += 1
        return token

    def _place(self, token: _Token) -> Place:
        return functools.partial(_with_caret, self._text, token.start, token.end)

    def _fail(self, token: _Token, message: str) -> NoReturn:
        hint = "for example to-openvino,make-stateful{beam-index=true}, or as a target gpu{cache=reorder}"
        raise UsageError("GP210", self._place(token)(message), hint)


def _with_caret(text: str, start: int, end: int, message: str) -> str:
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start)
    line = text[first : last if last >= 0 else len(text)]
    column = start - first
    width = max(1, min(end - start, len(line) - column))
    where = (
        f"column {column + 1}" if "\n" not in text else f"line {text.count(chr(10), 0, start) + 1}, column {column + 1}"
    )
    # Tabs would shift the caret.
    return f"{message} ({where})\n  {line.replace(chr(9), ' ')}\n  {' ' * column}{'^' * width}"
