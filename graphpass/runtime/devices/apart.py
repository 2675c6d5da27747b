"""Run a program in a separate process, because a driver may crash it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

#: An exception of Python or Node, ``Error [Kind]: message``.
_ERROR = re.compile(r"Error(?: \[\w+\])?:")


def run_apart(
    command: Sequence[str], answer: Path, limit: int | None, environment: Mapping[str, str] | None = None
) -> str:
    """Run a program that writes a file.

    Args:
        command: The program and its arguments.
        answer: The file that the program writes at its end.
        limit: Timeout in seconds; ``None`` for none.
        environment: Variables in addition to those of this process.

    Returns:
        The failure, with the error that the program printed; empty if it wrote the file.
    """
    variables = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(  # noqa: S603 - found on PATH, or this Python
            command, capture_output=True, text=True, errors="replace", check=False, timeout=limit, env=variables
        )
    except subprocess.TimeoutExpired:
        return f"it did not answer within {limit} seconds"
    if answer.exists():
        return ""
    words = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    ended = f"its process ended with {done.returncode}"
    return f"{ended}: {_error_in(words)}" if words else ended


def _error_in(words: list[str]) -> str:
    """Return the last line of an exception, before its stack trace; else the last line."""
    return next((line for line in reversed(words) if _ERROR.search(line)), words[-1])
