"""Read and parse JSON and TOML of files that anybody may have written."""

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
    """Return the path of a file that has an end: no pipe, socket or device.

    Raises:
        OSError: It has none, or the file system's error.
    """
    kind = path.stat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # reading a folder has an error of its own
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path


def read_json(content: str | bytes) -> Any:
    """Return the value of a JSON document.

    Raises:
        ValueError: It is none, or nests too deep.
    """
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it nests too deep") from error


def read_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML document.

    Raises:
        ValueError: It is none, or nests too deep.
    """
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it nests too deep") from error
