"""Locks that end with the process that has them."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import contextlib
    from pathlib import Path

__all__ = ["lock"]

#: What file systems say that have no locks, or none on folders, some network ones among them.
_NO_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP})


def lock(path: Path, stack: contextlib.ExitStack, *, wait: bool = False) -> bool:
    """Lock a file or folder until ``stack`` ends or the process does; whether nobody else has.

    Args:
        path: What to lock; only who asks for the lock notices.
        stack: What ends the lock.
        wait: Wait until whoever has the lock ends it.

    Raises:
        OSError: The file system's words; none where it has no locks.
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
