"""Line numbers of values in a TOML file, which parsers do not report."""

from __future__ import annotations

from collections.abc import Sequence

from graphpass.storage.documents import read_toml

#: Closing brackets of arrays and inline tables that may enclose the value.
_CLOSERS = ("", "]", "}", "}]", "]}", "]}]")


def line_of(text: str, path: Sequence[str | int]) -> int:
    """Return the line, from 1, of a value or of its table's start.

    Parses growing prefixes of the document until one has the path, in time quadratic in the number of lines. Use it
    only for messages.

    Args:
        text: A valid TOML document.
        path: Keys and indices of the value.
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
