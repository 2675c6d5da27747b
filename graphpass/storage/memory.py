"""Remember what was computed of files, in the user's cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

#: A file may be written to twice within one tick of its clock, so recently written files are not remembered.
_SETTLED = 2 * 10**9

#: Suffix of files that are being written.
_HALF = ".new"


def memory_folder(name: str) -> Path:
    """Return a folder of what is remembered: ``graphpass/NAME`` in the user's cache folder."""
    folder = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(folder) if folder else Path.home() / ".cache") / "graphpass" / name


def memory_of(name: str, path: str | os.PathLike[str]) -> Path:
    """Return the file in folder ``name`` for what is remembered of a path."""
    return memory_folder(name) / f"{hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()}.json"


def is_settled(*times: int) -> bool:
    """Report whether a file with these times can no longer change within them.

    Args:
        times: Times of its content and its state, in nanoseconds.
    """
    return time.time_ns() - max(times) >= _SETTLED


def sweep_memory() -> None:
    """Remove memories that killed processes left half written."""
    for name in ("cells", "digests", "runs", "weights"):
        for file in memory_folder(name).glob(f"*{_HALF}"):
            with contextlib.suppress(OSError):
                if is_settled(file.stat().st_mtime_ns):
                    file.unlink()


def remember(memory: Path, content: Any) -> None:
    """Write a memory, whole or not at all.

    Without one, the next run computes again: that costs time alone, so errors of the file system are not a failure.

    Args:
        memory: The file, see `memory_of`.
        content: A value that JSON can hold.
    """
    with contextlib.suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=memory.parent, suffix=_HALF, delete=False) as stream:
            json.dump(content, stream)
        os.replace(stream.name, memory)
