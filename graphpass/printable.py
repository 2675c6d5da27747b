"""Escape text of models and paths before it is printed.

Names in a model may hold any character: ``ESC ]0;…`` sets a terminal's title, a carriage return hides the text
before it, and a line that begins with ``::error`` is a command to GitHub Actions.
"""

from __future__ import annotations

import re

#: Control characters, marks that reverse the direction of text, and separators of lines besides the newline.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

#: Commands of CI systems: GitHub Actions reads `::` at the beginning of a line, and `##[` anywhere.
_COMMANDS = re.compile(r"^(\s*):(?=:)|(?<=#)#(?=\[|vso\[)", re.MULTILINE)


def visible(text: str) -> str:
    """Return ``text`` with escaped control characters and direction marks; newlines and tabs stay."""
    return _HIDDEN.sub(lambda match: _escape(match[0]), text)


def on_one_line(text: str) -> str:
    """Return ``text`` escaped as by `visible`, newlines and tabs, too."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def printable(text: str) -> str:
    """Return ``text`` escaped as by `visible`, also commands that CI systems read in logs."""
    return _COMMANDS.sub(lambda match: f"{match[1] or ''}{_escape(match[0][-1])}", visible(text))


def printable_json(text: str) -> str:
    """Return ASCII JSON with escaped commands to CI systems; the parsed value is unchanged."""
    return re.sub(r"(?<=#)#(?=\[|vso\[)", r"\\u0023", text)


def _escape(character: str) -> str:
    code = ord(character)
    return "\\r" if character == "\r" else f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
