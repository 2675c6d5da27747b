"""A cache of results computed from files, in the user's cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

#: Two writes within one tick of the clock cannot be distinguished, so recently written files are not cached.
_SETTLED = 2 * 10**9

#: Suffix of incomplete files.
_HALF = ".new"


def memory_folder(name: str) -> Path:
    """Return a folder of the cache: ``graphpass/NAME`` in the user's cache folder."""
    folder = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(folder) if folder else Path.home() / ".cache") / "graphpass" / name


def memory_of(name: str, path: str | os.PathLike[str]) -> Path:
    """Return the cache file of a path.

    Args:
        name: Name of the folder in the cache: ``cells``, ``digests``, ``runs`` or ``weights``.
        path: The path, which is made absolute without resolving links.
    """
    return memory_folder(name) / f"{hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()}.json"


def is_settled(*times: int) -> bool:
    """Return whether a further write to the file would change its times.

    Args:
        times: Times of its content and its state, in nanoseconds.
    """
    return time.time_ns() - max(times) >= _SETTLED


def sweep_memory() -> None:
    """Remove incomplete cache files of killed processes."""
    for name in ("cells", "digests", "runs", "weights"):
        for file in memory_folder(name).glob(f"*{_HALF}"):
            with contextlib.suppress(OSError):
                if is_settled(file.stat().st_mtime_ns):
                    file.unlink()


def remember(memory: Path, content: Any) -> None:
    """Write a cache file atomically.

    Errors of the file system are ignored: without the file, the next run only computes again.

    Args:
        memory: The file; see `memory_of`.
        content: A value that JSON can represent.
    """
    with contextlib.suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=memory.parent, suffix=_HALF, delete=False) as stream:
            json.dump(content, stream)
        os.replace(stream.name, memory)
