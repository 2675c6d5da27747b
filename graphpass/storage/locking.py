"""Lock files and folders until a process ends."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path

#: Errors of file systems that have no locks, or none on folders, some network ones among them.
_NO_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP})


def lock(path: Path, stack: contextlib.ExitStack, *, wait: bool = False) -> bool:
    """Lock a file or folder, and return whether nobody else holds the lock.

    Args:
        path: The file or folder; only callers of this function notice.
        stack: Ends the lock.
        wait: Wait until another holder ends the lock.

    Raises:
        OSError: The file system's words; none if it has no locks.
    """
    if sys.platform == "win32":
        return True
    import fcntl

    descriptor = os.open(path, os.O_RDONLY)
    stack.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True
