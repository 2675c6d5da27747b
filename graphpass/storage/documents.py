"""Parsers for JSON and TOML files from untrusted sources."""

from __future__ import annotations

import errno
import json
import stat
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def regular(path: Path) -> Path:
    """Return ``path`` unless it is a pipe, socket or device, which may not end.

    Raises:
        OSError: The file is of another kind, or the file system reports an error.
    """
    kind = path.stat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # reading a folder raises a specific error
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path


def read_json(content: str | bytes) -> Any:
    """Return the value of a JSON document.

    Raises:
        ValueError: The content is not JSON, or its nesting is too deep.
    """
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("the nesting is too deep") from error


def read_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML document.

    Raises:
        ValueError: The text is not TOML, or its nesting is too deep.
    """
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("the nesting is too deep") from error
