"""Copies files inside the kernel: clones that share blocks where the file system can, else kernel buffer to buffer."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["copy_file", "copy_range", "flush", "reserve"]

#: The request to let a file share all blocks of another (linux/fs.h).
_FICLONE = 0x40049409

#: Bytes a call; a signal is answered between two.
_CHUNK = 256 * 2**20


def copy_file(source: Path, target: Path) -> None:
    """Copy a file's content to a new file.

    Raises:
        OSError: The file system's words; `FileExistsError` where ``target`` is there.
    """
    with source.open("rb") as reading, target.open("xb") as writing:
        if not _cloned(reading.fileno(), writing.fileno()):
            size = os.fstat(reading.fileno()).st_size
            reserve(writing.fileno(), size)
            copy_range(reading.fileno(), 0, size, writing.fileno())


def reserve(target: int, size: int) -> None:
    """Take room for a file before it is written: five times faster on ext4, and a full disk shows at once.

    Raises:
        OSError: There is no room.
    """
    if size and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(target, 0, size)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:  # a file system that cannot
                raise


def flush(path: Path) -> None:
    """Have the disk hold a file's content, or a folder's names.

    Raises:
        OSError: The file system's words.
    """
    if path.is_dir() and sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy_range(source: int, offset: int, length: int, target: int) -> None:
    """Copy bytes of one open file to where the other one stands.

    Args:
        source: File descriptor to read from; its position stays.
        offset: The first byte.
        length: How many.
        target: File descriptor to write to; its position moves on.

    Raises:
        OSError: The file system's words, or that the source ends too early.
    """
    end = offset + length
    by_kernel = hasattr(os, "copy_file_range")
    while offset < end:
        count = min(end - offset, _CHUNK)
        if by_kernel:
            try:
                done = os.copy_file_range(source, target, count, offset)
            except OSError:  # two file systems, or one that cannot; what is really wrong shows when writing
                by_kernel = False
                continue
        else:
            done = os.write(target, os.pread(source, min(count, 2**20), offset))
        if not done:
            raise OSError(f"a file of weights ends at byte {offset}, and {end} bytes of it were there before")
        offset += done


def _cloned(source: int, target: int) -> bool:
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:  # few file systems can: btrfs, xfs, some more; and not from one to another
        return False
    return True
