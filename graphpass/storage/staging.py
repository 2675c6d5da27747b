"""A folder to write into, whose files take their place together or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from typing import TYPE_CHECKING

from graphpass.errors import WriteError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["staging"]

_GRAPH_SUFFIXES = {".onnx", ".xml"}


@contextlib.contextmanager
def staging(destination: Path) -> Iterator[Path]:
    """A fresh folder on the destination's file system; what is written there moves into the destination at the end.

    Each file takes its place at once, weights before the graph that reads them. Where anything fails, in the ``with``
    block or while moving, the destination is as it was and nothing is left behind.

    Args:
        destination: The folder to write into; it and its parents are made where missing.

    Yields:
        The folder to write into instead.

    Raises:
        WriteError: GP501, with the file system's words. Any `OSError` of the ``with`` block becomes one.
    """
    base = next(folder for folder in (destination, *destination.absolute().parents) if folder.exists())
    scratch = base / f".graphpass-{uuid.uuid4().hex}"
    staged, replaced = scratch / "new", scratch / "old"
    try:
        staged.mkdir(parents=True)
        yield staged
        _commit(staged, replaced, destination)
    except OSError as error:
        place = str(error.filename or destination).replace(str(staged), str(destination))
        reason = f"cannot write to {destination}: {error.strerror or error} ({place})"
        raise WriteError("GP501", reason, "nothing was changed; choose another folder, or make room") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _commit(staged: Path, replaced: Path, destination: Path) -> None:
    files = sorted(
        (file for file in staged.rglob("*") if file.is_file()),
        key=lambda file: (file.suffix.lower() in _GRAPH_SUFFIXES, file),
    )
    for file in files:
        with file.open("rb+") as stream:
            os.fsync(stream.fileno())
    with contextlib.ExitStack() as undo:
        if not destination.exists():
            _make_folder(destination.parent, undo)
            staged.rename(destination)
        else:
            for file in files:
                _move(file, destination / file.relative_to(staged), replaced / file.relative_to(staged), undo)
        undo.pop_all()


def _move(file: Path, target: Path, old: Path, undo: contextlib.ExitStack) -> None:
    _make_folder(target.parent, undo)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if os.path.lexists(target):
        old.parent.mkdir(parents=True, exist_ok=True)
        _keep(target, old)
        undo.callback(os.replace, old, target)
    else:
        undo.callback(target.unlink, missing_ok=True)
    os.replace(file, target)


def _make_folder(folder: Path, undo: contextlib.ExitStack) -> None:
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir()
        undo.callback(parent.rmdir)


def _keep(target: Path, old: Path) -> None:
    try:
        os.link(target, old, follow_symlinks=False)
    except OSError:  # a file system without hard links: for a moment there is no file
        os.rename(target, old)
