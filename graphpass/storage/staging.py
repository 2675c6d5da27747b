"""A folder to write into, whose files take their place together or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import uuid
from typing import TYPE_CHECKING

from graphpass.errors import WriteError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["staging"]

_GRAPH_SUFFIXES = {".onnx", ".xml"}
_PREFIX = ".graphpass-"

#: What a folder of files that wait for their place is called: while they are written, and once all are there.
_WRITING, _COMPLETE = "new", "complete"

#: The folder of files that they replace, until all are replaced.
_REPLACED = "old"

#: What file systems say that lock no folders, some network ones among them.
_NO_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP})


@contextlib.contextmanager
def staging(destination: Path) -> Iterator[Path]:
    """A fresh folder on the destination's file system; what is written there moves into the destination at the end.

    A new destination appears at once with all its files. In one that is there each file takes its place at once: old
    graphs leave first and new ones come last, so that no graph ever stands beside weights of another. Where anything
    fails, in the ``with`` block or while moving, the destination is as it was and nothing is left behind. After a
    crash or a kill the next one to write there cleans up: what was complete takes its place, the rest is removed. Of
    several that write the same files at once one wins.

    Args:
        destination: The folder to write into; it and its parents are made where missing.

    Yields:
        The folder to write into instead.

    Raises:
        WriteError: GP501, with the file system's words; any `OSError` of the ``with`` block becomes one. GP504,
            another process wrote the same files meanwhile.
    """
    staged: Path | None = None
    try:
        with contextlib.ExitStack() as stack:
            base = next(folder for folder in (destination, *destination.absolute().parents) if folder.exists())
            _clean_up(base)
            found = _inodes(destination)
            scratch = _scratch_folder(base, stack)
            staged = scratch / _WRITING
            staged.mkdir()
            yield staged
            for path in (*staged.rglob("*"), staged):
                _flush(path)
            if found is None:
                _appear(staged, destination)
            else:
                _lock(destination, stack, wait=True)
                _refuse_changes(staged, destination, found)
                _replace(scratch, destination)
    except OSError as error:
        place = str(error.filename or destination).replace(str(staged), str(destination))
        reason = f"cannot write to {destination}: {error.strerror or error} ({place})"
        raise WriteError("GP501", reason, "nothing was changed; choose another folder, or make room") from error


def _scratch_folder(base: Path, stack: contextlib.ExitStack) -> Path:
    """A new folder in ``base``, locked as long as its writer lives."""
    while True:
        scratch = base / f"{_PREFIX}{uuid.uuid4().hex}"
        stack.callback(_remove, scratch)  # first: an interrupt right after the folder is made finds it known
        scratch.mkdir()
        try:
            if _lock(scratch, stack) and scratch.exists():
                return scratch
        except FileNotFoundError:  # somebody cleaned up between the two
            continue


def _clean_up(base: Path) -> None:
    """Finish, undo or remove what writers left in ``base`` that are no more."""
    for scratch in sorted(base.glob(f"{_PREFIX}*")):
        with contextlib.ExitStack() as stack, contextlib.suppress(FileNotFoundError, PermissionError):
            if scratch.is_dir() and not scratch.is_symlink() and _lock(scratch, stack):
                left = scratch / (_COMPLETE if (scratch / _COMPLETE).exists() else _REPLACED)
                for file in _in_order(left):
                    target = base / file.relative_to(left)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(file, target)
                _remove(scratch)


def _remove(scratch: Path) -> None:
    # Old files first: without the folder beside them they would be taken for what is to come back.
    for folder in (scratch / _REPLACED, scratch):
        shutil.rmtree(folder, ignore_errors=True)


def _inodes(folder: Path) -> dict[str, int] | None:
    """What lies in ``folder``, each with the number of its file; ``None`` where there is no such folder."""
    if not folder.exists():
        return None
    with os.scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries}


def _refuse_changes(staged: Path, destination: Path, found: dict[str, int]) -> None:
    now = _inodes(destination) or {}
    for name in sorted(path.name for path in staged.iterdir()):
        if now.get(name) != found.get(name):
            raise _overtaken(destination / name)
    for file in _in_order(staged):
        target = destination / file.relative_to(staged)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))


def _appear(staged: Path, destination: Path) -> None:
    """Give the staged folder the name of the destination, which was not there."""
    with contextlib.ExitStack() as undo:
        _make_folder(destination.parent, undo)
        try:
            staged.rename(destination)
        except OSError as error:
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                raise _overtaken(destination) from error
            raise
        undo.pop_all()
    _flush(destination.parent)


def _replace(scratch: Path, destination: Path) -> None:
    """Move the staged files into the destination, one by one; it is locked, and all of them are complete."""
    staged, complete, replaced = scratch / _WRITING, scratch / _COMPLETE, scratch / _REPLACED
    names = [file.relative_to(staged) for file in _in_order(staged)]
    with contextlib.ExitStack() as undo:
        os.rename(staged, complete)
        try:
            _flush(scratch)
            for name in names:
                if _is_graph(name) and os.path.lexists(destination / name):
                    _put_away(destination / name, replaced / name, undo)
            for name in names:
                _move(complete / name, destination / name, replaced / name, undo)
            _flush(destination)
        except BaseException:
            os.rename(complete, staged)
            raise
        undo.pop_all()


def _in_order(folder: Path) -> list[Path]:
    """The files below ``folder``, graphs last."""
    return sorted((file for file in folder.rglob("*") if file.is_file()), key=lambda file: (_is_graph(file), file))


def _is_graph(file: Path) -> bool:
    return file.suffix.lower() in _GRAPH_SUFFIXES


def _put_away(target: Path, old: Path, undo: contextlib.ExitStack) -> None:
    old.parent.mkdir(parents=True, exist_ok=True)
    os.rename(target, old)
    undo.callback(os.replace, old, target)


def _move(file: Path, target: Path, old: Path, undo: contextlib.ExitStack) -> None:
    _make_folder(target.parent, undo)
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


def _flush(path: Path) -> None:
    """Have the disk hold a file's content, or a folder's names."""
    if path.is_dir() and sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(folder: Path, stack: contextlib.ExitStack, *, wait: bool = False) -> bool:
    """Lock a folder until ``stack`` ends or the process does; whether nobody else has."""
    if sys.platform == "win32":
        return True
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def _overtaken(path: Path) -> WriteError:
    reason = f"another process wrote {path} while this one worked"
    return WriteError("GP504", reason, "its result stays; run this again, or choose another folder")
