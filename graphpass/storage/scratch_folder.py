"""Temporary folders; if their process is killed, the next process removes them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from graphpass.storage.locking import lock


@contextlib.contextmanager
def scratch_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Yield a new folder, which is removed at the end of the context.

    Args:
        prefix: Prefix of the name, for `sweep_scratch`.
        parent: The parent folder; the system's folder for temporary files by default.

    Raises:
        OSError: The file system reports an error.
    """
    with contextlib.ExitStack() as stack:
        while True:
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            stack.callback(_remove, folder, os.getpid())
            with contextlib.suppress(FileNotFoundError):  # another process removed the folder before it was locked
                if lock(folder, stack) and folder.exists():
                    break
        yield folder


def _remove(folder: Path, owner: int) -> None:
    """Remove a folder, unless the current process is a forked child."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_scratch(parent: Path, prefix: str) -> None:
    """Remove folders of `scratch_folder` whose processes have ended.

    Args:
        parent: The folder that contains them.
        prefix: Prefix of their names.
    """
    for folder in sorted(parent.glob(f"{prefix}*")):
        with contextlib.ExitStack() as stack, contextlib.suppress(FileNotFoundError, PermissionError):
            if folder.is_dir() and not folder.is_symlink() and lock(folder, stack):
                shutil.rmtree(folder, ignore_errors=True)
