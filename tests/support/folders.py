"""What lies in a folder."""

from __future__ import annotations

from pathlib import Path


def folder_contents(folder: Path) -> dict[str, bytes | None]:
    """Every file below ``folder`` with its bytes, every folder with ``None``."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }
