"""Records of files to remove from a folder; a later writer can complete the removal."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from graphpass.storage.documents import read_json

_GONE = "gone"


def record_removals(scratch: Path, names: Iterable[Path]) -> None:
    """Record, in a scratch folder, files to remove from the destination.

    Args:
        scratch: The scratch folder.
        names: The files, relative to the destination.

    Raises:
        OSError: The file system reports an error.
    """
    (scratch / _GONE).write_text(json.dumps([str(name) for name in names]), encoding="utf-8")


def recorded_removals(scratch: Path) -> tuple[Path, ...]:
    """Return the files that `record_removals` recorded, relative to the destination."""
    noted = scratch / _GONE
    return tuple(map(Path, read_json(noted.read_bytes()))) if noted.exists() else ()


def remove(names: Iterable[Path], destination: Path) -> None:
    """Remove those files of a folder that exist.

    Args:
        names: The files, relative to ``destination``.
        destination: The folder.

    Raises:
        OSError: The file system reports an error.
    """
    for name in names:
        (destination / name).unlink(missing_ok=True)
