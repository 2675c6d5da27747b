"""Note files that leave a folder, so that whoever finishes the change removes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from graphpass.storage.documents import read_json

_GONE = "gone"


def note_gone(scratch: Path, names: Iterable[Path]) -> None:
    """Note, in a scratch folder, files that leave the destination.

    Raises:
        OSError: The file system's error.
    """
    (scratch / _GONE).write_text(json.dumps([str(name) for name in names]), encoding="utf-8")


def gone(scratch: Path) -> tuple[Path, ...]:
    """Return the files that `note_gone` noted, relative to the destination."""
    noted = scratch / _GONE
    return tuple(map(Path, read_json(noted.read_bytes()))) if noted.exists() else ()


def remove(names: Iterable[Path], destination: Path) -> None:
    """Remove files of a folder, as far as they are there.

    Raises:
        OSError: The file system's error.
    """
    for name in names:
        (destination / name).unlink(missing_ok=True)
