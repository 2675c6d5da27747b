"""Lock files and folders until a process ends."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

#: Errors of file systems that have no locks, or none on folders, some network ones among them.
_NO_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP})

#: Times that a file or its folder may be gone before it can be locked; some folders, as below /proc, cannot be made.
_MOST_MISSED = 1000


@contextlib.contextmanager
def sole_worker(place: Path) -> Iterator[None]:
    """Let one process at a time work on a place.

    Others wait until it is done. The lock is a file beside the place, which is gone after it, as are folders that were
    made for it and are empty.

    Args:
        place: A file or folder, which need not be there.

    Raises:
        OSError: The file system's error.
    """
    file = _lock_of(place)
    made = [folder for folder in (place.parent, *place.parent.parents) if not folder.exists()]
    with contextlib.ExitStack() as stack:
        missed = 0
        while True:
            try:
                if _hold(file, stack):
                    break
            except FileNotFoundError:  # another process is done with the file, or with its folder
                missed += 1
                if missed == _MOST_MISSED:
                    raise
        try:
            yield
        finally:
            # Locked until it is gone: another waiting process sees that, and makes a new one.
            file.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # folders that are in use by now
                for folder in made:
                    folder.rmdir()


def remove_lock(place: Path) -> None:
    """Remove the lock file of a `sole_worker` that was killed; a locked one stays."""
    file = _lock_of(place)
    with contextlib.ExitStack() as stack, contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        descriptor = os.open(file, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        if _flock(descriptor, wait=False) and os.path.samestat(os.stat(file), os.fstat(descriptor)):
            file.unlink()


def _lock_of(place: Path) -> Path:
    return place.parent / f".{place.name}.graphpass-lock"


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
        except FileExistsError:  # the folder was there for another's mkdir, and gone when ours looked
            if file.parent.exists() and not file.parent.is_dir():
                raise
            return False
        stack.push(attempt.pop_all())
        return True


def lock(path: Path, stack: contextlib.ExitStack, *, wait: bool = False) -> bool:
    """Lock a file or folder, and return whether no other process holds the lock.

    Args:
        path: The file or folder; only callers of this function notice.
        stack: Ends the lock.
        wait: Wait until another holder ends the lock.

    Raises:
        OSError: The file system's error; none if it has no locks.
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
