"""Find the line of a value in a TOML file; parsers keep none."""

from __future__ import annotations

from collections.abc import Sequence

from graphpass.storage.documents import read_toml

#: Ends of arrays and inline tables that the value may stand in.
_CLOSERS = ("", "]", "}", "}]", "]}", "]}]")


def line_of(text: str, path: Sequence[str | int]) -> int:
    """Return the line, from 1, of a value or of its table's start.

    It parses the first lines alone, then more, until the path leads to something. That is for messages: it takes time
    that is quadratic in the number of lines.

    Args:
        text: A TOML document that parses.
        path: Keys and indices.
    """
    lines = text.splitlines()
    for count in range(1, len(lines) + 1):
        beginning = "\n".join(lines[:count])
        for closer in _CLOSERS:
            try:
                document = read_toml(beginning + closer)
            except ValueError:
                continue
            if _leads(document, path):
                return count
            break
    return max(len(lines), 1)


def _leads(document: object, path: Sequence[str | int]) -> bool:
    for key in path:
        if isinstance(document, dict) and key in document:
            document = document[str(key)]
        elif isinstance(document, list) and isinstance(key, int) and key < len(document):
            document = document[key]
        else:
            return False
    return True
