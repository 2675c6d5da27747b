"""Find programs on PATH."""

from __future__ import annotations

import shutil
import subprocess

#: Seconds after which a program counts as hanging.
_LIMIT = 30


def version_of(*names: str) -> str | None:
    """Return the version of the first program of these names that answers; ``None`` without one."""
    for path in filter(None, map(shutil.which, names)):
        try:
            done = subprocess.run(  # noqa: S603 - found on PATH
                [path, "--version"], capture_output=True, text=True, check=False, timeout=_LIMIT
            )
        except subprocess.TimeoutExpired:
            continue
        if done.returncode == 0 and (words := done.stdout.strip()):
            return words.splitlines()[0]
    return None
