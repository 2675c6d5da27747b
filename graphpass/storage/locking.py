"""Locks on files and folders, released at the latest when the process ends."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

#: Errors of file systems that do not support locks, or not on folders, such as some network file systems.
_NO_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP})

#: Attempts to create a lock file whose folder disappears; some folders, such as below /proc, cannot be created.
_MOST_MISSED = 1000


@contextlib.contextmanager
def sole_worker(path: Path) -> Iterator[None]:
    """Run the block in one process at a time for ``path``; other processes wait.

    The lock is a file beside ``path``. It is removed at the end, with folders that were created for it and are empty.

    Args:
        path: A file or folder, which may be missing.

    Raises:
        OSError: The file system reports an error.
        FileNotFoundError: The lock cannot be created, because its folder is missing after each attempt.
    """
    file = _lock_of(path)
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    with contextlib.ExitStack() as stack:
        missed = 0
        while True:
            try:
                if _hold(file, stack):
                    break
            except FileNotFoundError:  # another process removed the file or its folder
                missed += 1
                if missed == _MOST_MISSED:
                    raise
        try:
            yield
        finally:
            # The lock is released after the removal, so a waiting process notices that the file is gone and creates a
            # new one.
            file.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # folders that other processes use
                for folder in made:
                    folder.rmdir()


def remove_lock(path: Path) -> None:
    """Remove the lock file of a killed `sole_worker`; a locked file is kept."""
    file = _lock_of(path)
    with contextlib.ExitStack() as stack, contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        descriptor = os.open(file, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        if _flock(descriptor, wait=False) and os.path.samestat(os.stat(file), os.fstat(descriptor)):
            file.unlink()


def _lock_of(path: Path) -> Path:
    return path.parent / f".{path.name}.graphpass-lock"


def _hold(file: Path, stack: contextlib.ExitStack) -> bool:
    with contextlib.ExitStack() as attempt:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            descriptor = os.open(file, os.O_RDONLY)
            attempt.callback(os.close, descriptor)
            _flock(descriptor, wait=True)
            if not os.path.samestat(os.stat(file), os.fstat(descriptor)):
                return False
        except FileExistsError:  # another process created and removed the folder during mkdir
            if file.parent.exists() and not file.parent.is_dir():
                raise
            return False
        stack.push(attempt.pop_all())
        return True


def lock(path: Path, stack: contextlib.ExitStack, *, wait: bool = False) -> bool:
    """Lock a file or folder.

    Args:
        path: The file or folder; the lock is advisory.
        stack: Releases the lock at its end.
        wait: Whether to wait until another process releases the lock.

    Returns:
        Whether the lock was acquired; ``True`` on Windows, which has no such locks.

    Raises:
        OSError: The file system reports an error other than missing support for locks.
    """
    if sys.platform == "win32":
        return True
    descriptor = os.open(path, os.O_RDONLY)
    stack.callback(os.close, descriptor)
    return _flock(descriptor, wait=wait)


def _flock(descriptor: int, *, wait: bool) -> bool:
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True
