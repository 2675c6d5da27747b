"""Parse JSON and TOML of files that anybody may have written."""

from __future__ import annotations

import json
import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


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
